"""Run an app on its own log: append, drain the groups inline, and inspect the result."""

from __future__ import annotations

import threading
import uuid
from contextlib import ExitStack
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

from penstock.app import App
from penstock.core.event import Appended
from penstock.declare.groups import declare
from penstock.declare.subscription import Subscription
from penstock.errors import InvalidInput, UnknownGroup
from penstock.log.deliveries import DeliveryRecord
from penstock.log.log import Log
from penstock.log.open import open_log
from penstock.testing import draining
from penstock.testing.clock import VirtualClock
from penstock.testing.draining import Drained, InlineWorker
from penstock.testing.emitted import Emitted, of_stored

_NAME = "harness"
_ALL = 1_000_000  # the most events or deliveries that a test can inspect
_OUTSIDE = "A harness has a log only inside its block: with Harness(app) as harness: …"


class Harness:
    """A log for one test of an app: a temporary SQLite file, or `url`, on a virtual clock.

    Inside the block `app.open()` opens that log, too. `url` should name an empty database: nothing is removed from it.

    >>> app = App(name="shop")
    >>> @app.subscribe("orders", group="fraud")
    ... def screen(event, ctx):
    ...     ctx.emit("alerts", event.json(), type="alert.raised")
    >>> with Harness(app) as harness:
    ...     _ = harness.append("orders", {"id": 7}, type="order.created")
    ...     print(harness.drain().published, harness.emitted("alerts")[0].payload)
    1 {'id': 7}
    """

    def __init__(self, app: App, *, url: str | None = None, clock: VirtualClock | None = None) -> None:
        self.app = app
        self.clock = VirtualClock() if clock is None else clock
        self._url = url
        self._log: Log | None = None
        self._workers: list[InlineWorker] = []
        self._appended: set[uuid.UUID] = set()
        self._began_at = 0  # the end of the log when the block began
        self._draining = threading.Lock()
        self._stack = ExitStack()

    def __enter__(self) -> Harness:
        if self._log is not None:
            raise InvalidInput("This harness is already in use; create another one.")
        subscriptions = self.app.chosen()
        with ExitStack() as stack:
            url = self._url
            if url is None:
                url = f"sqlite:///{stack.enter_context(TemporaryDirectory(prefix='penstock-'))}/log.db"
            log = stack.enter_context(open_log(url, clock=self.clock))
            for one in subscriptions:
                declare(log, one, _NAME)
            self._workers = [InlineWorker(log, one, _NAME) for one in subscriptions]
            for worker in self._workers:
                stack.callback(worker.close)
                worker.start()
            self._began_at = log.end()
            self._appended.clear()
            stack.callback(setattr, self.app, "url", self.app.url)
            self.app.url = url
            self._log = log
            stack.callback(setattr, self, "_log", None)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def log(self) -> Log:
        """The log, for everything that the harness has no method for."""
        if self._log is None:
            raise InvalidInput(_OUTSIDE)
        return self._log

    @property
    def url(self) -> str:
        """The URL of the log, for the test's own connections."""
        return self.log.store.url

    def append(self, stream: str, payload: Any, *, type: str = "test", **fields: Any) -> Appended:
        """Append one event, with any field of `log.append`; `emitted` does not list it."""
        done = self.log.append(stream, payload, type=type, **fields)
        if not done.duplicate:
            self._appended.add(done.event_id)
        return done

    def drain(self, group: str | None = None, *, stream: str | None = None, most_seconds: float = 30.0) -> Drained:
        """Handle everything that is due now, in the calling thread: of one group, or of all groups including what they
        emit to each other.

        Events that wait for the clock keep waiting. A group whose target is `Unavailable` is skipped until the next
        call. Raises `TimeoutError` if there is still work after `most_seconds`.
        """
        workers = self._named(group, stream)
        if not self._draining.acquire(blocking=False):
            raise InvalidInput("A drain is already running; neither a handler nor another thread can start a second.")
        try:
            return draining.drain(workers, most_seconds)
        finally:
            self._draining.release()

    def emitted(self, stream: str) -> list[Emitted]:
        """Return what was appended to the stream since the block began, in order, without the test's own appends."""
        events = self.log.read(stream, after=self._began_at, limit=_ALL)
        return [of_stored(event) for event in events if event.event_id not in self._appended]

    def deliveries(self, group: str, *, stream: str | None = None, state: str | None = None) -> list[DeliveryRecord]:
        """Return the group's deliveries in offset order."""
        one = self._only(group, stream)
        return self.log.deliveries(one.stream, one.group, state=state, limit=_ALL)

    def dead(self, group: str, *, stream: str | None = None) -> list[DeliveryRecord]:
        """Return the group's dead letters in offset order."""
        return self.deliveries(group, stream=stream, state="DEAD")

    def state(self, group: str, key: str, *, stream: str | None = None) -> dict[str, Any]:
        """Return the current state of one ordering key in the group."""
        one = self._only(group, stream)
        return self.log.state(one.stream, one.group, key)

    def _named(self, group: str | None, stream: str | None) -> list[InlineWorker]:
        if self._log is None:
            raise InvalidInput(_OUTSIDE)
        found = [
            worker
            for worker in self._workers
            if group in (None, worker.subscription.group) and stream in (None, worker.subscription.stream)
        ]
        if not found:
            wanted = ("" if group is None else f" {group!r}") + ("" if stream is None else f" on {stream!r}")
            known = ", ".join(sorted(worker.subscription.name for worker in self._workers))
            raise UnknownGroup(f"The app {self.app.name!r} has no group{wanted}; it has {known}.")
        return found

    def _only(self, group: str, stream: str | None) -> Subscription:
        found = [worker.subscription for worker in self._named(group, stream)]
        if len(found) > 1:
            streams = ", ".join(sorted(one.stream for one in found))
            raise InvalidInput(f"The group {group!r} reads {streams}: select one with stream=….")
        return found[0]

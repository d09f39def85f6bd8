"""What every engine does around its workers: reap, remove finished jobs, end a drain, stop."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from penstock.core.observe import Observers, everyone
from penstock.declare.ingest import Ingest
from penstock.engine.drain import Drained, Served
from penstock.engine.ingest.counters import IngestCounters
from penstock.engine.ingest.ingester import Ingester
from penstock.engine.outage import try_once
from penstock.engine.rounds import rounds
from penstock.log.log import Log

_REAP_SECONDS = 5.0


class Engine(ABC):
    """Threads that work for groups until they are stopped, or until the groups are drained.

    `start`, then `wait`; `stop` may be called by any thread, and by a signal handler.
    """

    tick = 0.05  # seconds between two rounds of maintenance
    drain_look = 0.05  # seconds between two drain checks
    retention_seconds = 5.0  # between two rounds that remove finished jobs

    def __init__(self, log: Log, served: Sequence[Served], *, until_drained: bool) -> None:
        self._log = log
        self._served = served
        self._until_drained = until_drained
        self._left = Drained(log, served)
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._began = time.monotonic()
        self._threads: list[threading.Thread] = []
        self._ingesters: list[Ingester] = []
        self._ingested: dict[str, IngestCounters] = {}

    def ingest(self, ingests: Sequence[Ingest]) -> None:
        """Read these sources, too; call it before `start`."""
        for one in ingests:
            counters = self._ingested[one.name] = IngestCounters()
            self._ingesters.append(Ingester(self._log, one, Observers(counters, parent=everyone), self._stopping))

    @abstractmethod
    def start(self) -> None:
        """Declare the groups and start to work."""

    @abstractmethod
    def stop(self) -> None:
        """Stop gracefully: running handlers may finish, the rest is released. Returns at once."""

    @abstractmethod
    def quiet(self, quiet: bool) -> None:
        """Finish what is claimed, claim and read nothing new; False to resume."""
        for one in self._ingesters:
            one.quiet(quiet)

    @abstractmethod
    def snapshot(self) -> dict[str, dict[str, int]]:
        """Return the counters of every group as of now."""

    def ingested(self) -> dict[str, dict[str, int]]:
        """Return the counters of every source as of now."""
        return {name: counters.snapshot() for name, counters in self._ingested.items()}

    def wait(self, seconds: float | None = None) -> bool:
        """Return True when everything has stopped, False after `seconds`; raise the error that stopped it, if any."""
        if not self._ended.wait(seconds):
            return False
        if self._error is not None:
            raise self._error
        return True

    @property
    def stopping(self) -> bool:
        """Whether it was told to stop."""
        return self._stopping.is_set()

    @property
    def seconds(self) -> float:
        """Seconds since the engine was made."""
        return time.monotonic() - self._began

    @property
    def paused(self) -> dict[str, str]:
        """Groups that could not be drained, and sources that are not read any more, with the reason."""
        failed = {one.name: one.failure for one in self._ingesters if one.failure is not None}
        return {**self._left.paused, **failed}

    # --- for the engines -----------------------------------------------------------------------------------------

    def _thread(self, work: Callable[[], None], name: str) -> None:
        """Run in a new thread; an error in it stops the engine."""

        def run() -> None:
            try:
                work()
            except BaseException as error:
                self._fail(error)

        self._threads.append(threading.Thread(target=run, name=name, daemon=True))
        self._threads[-1].start()

    def _fail(self, error: BaseException) -> None:
        self._error = self._error or error
        self.stop()

    def _maintain(self) -> None:
        """Start to read sources, and the thread that reaps, ends a finished drain, and cleans up after the workers."""
        for one in self._ingesters:
            self._thread(one.run, f"penstock-{one.name}")
        threading.Thread(target=self._keep, name="penstock-keeper", daemon=True).start()

    def _keep(self) -> None:
        next_reap, next_look = time.monotonic() + _REAP_SECONDS, 0.0
        background = rounds(self._log, self.retention_seconds)
        try:
            while any(thread.is_alive() for thread in self._threads) and not self._stopping.wait(self.tick):
                self._tick()
                if time.monotonic() >= next_reap:
                    self._reap()
                    next_reap = time.monotonic() + _REAP_SECONDS
                for one in background:
                    one.tick()
                if self._until_drained and time.monotonic() >= next_look:
                    read = all(one.drained for one in self._ingesters)
                    if read and self._may_be_drained() and self._left.look():
                        self.stop()
                    next_look = time.monotonic() + self.drain_look
        except BaseException as error:
            self._fail(error)
        finally:
            for thread in self._threads:
                thread.join()
            self._close()
            self._ended.set()

    def _reap(self) -> None:
        """Take back expired leases of our own groups; an outage leaves them to the next time."""
        own = [(one.stream, one.group) for one in self._served]
        try_once(lambda: self._log.reap(groups=own), "reap")

    def _tick(self) -> None:  # noqa: B027 - optional
        """Do periodic work of the engine's own."""

    def _may_be_drained(self) -> bool:
        """Whether a drain check is worth a query."""
        return True

    @abstractmethod
    def _close(self) -> None:
        """Clean up; all threads have ended."""

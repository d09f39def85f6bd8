"""What every engine does around its workers: reap, notice that everything is drained, and stop."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from penstock.engine.drain import Drained, Served
from penstock.engine.outage import try_once
from penstock.log.log import Log

_REAP_SECONDS = 5.0


class Engine(ABC):
    """Threads that work for groups until they are stopped, or until the groups are drained.

    `start`, then `wait`; `stop` may be called by any thread, and by a signal handler.
    """

    tick = 0.05  # seconds between two looks at whether there is anything to do here
    drain_look = 0.05  # and at whether everything is drained

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

    @abstractmethod
    def start(self) -> None:
        """Declare the groups and begin to work."""

    @abstractmethod
    def stop(self) -> None:
        """End gracefully: running handlers get their time, what was never started goes back. Returns at once."""

    @abstractmethod
    def quiet(self, quiet: bool) -> None:
        """Finish what is claimed and claim nothing new; or continue."""

    @abstractmethod
    def snapshot(self) -> dict[str, dict[str, int]]:
        """The counters of every group, as of now."""

    def wait(self, seconds: float | None = None) -> bool:
        """Return True when all work has ended; raises what ended it, if that was an error."""
        if not self._ended.wait(seconds):
            return False
        if self._error is not None:
            raise self._error
        return True

    @property
    def seconds(self) -> float:
        """How long it has been at work."""
        return time.monotonic() - self._began

    @property
    def paused(self) -> dict[str, str]:
        """Groups that could not be drained, and why."""
        return self._left.paused

    # --- for the engines -----------------------------------------------------------------------------------------

    def _thread(self, work: Callable[[], None], name: str) -> None:
        """Work in a thread of its own; an error in it ends the engine."""

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
        """Start the thread that reaps now and then, ends a drain when it is done, and cleans up after the workers."""
        threading.Thread(target=self._keep, name="penstock-keeper", daemon=True).start()

    def _keep(self) -> None:
        next_reap, next_look = time.monotonic() + _REAP_SECONDS, 0.0
        own = [(one.stream, one.group) for one in self._served]
        try:
            while any(thread.is_alive() for thread in self._threads) and not self._stopping.wait(self.tick):
                self._tick()
                if time.monotonic() >= next_reap:
                    try_once(lambda: self._log.reap(groups=own), "reap")
                    next_reap = time.monotonic() + _REAP_SECONDS
                if self._until_drained and time.monotonic() >= next_look:
                    if self._may_be_drained() and self._left.look():
                        self.stop()
                    next_look = time.monotonic() + self.drain_look
        except BaseException as error:
            self._fail(error)
        finally:
            for thread in self._threads:
                thread.join()
            self._close()
            self._ended.set()

    def _tick(self) -> None:  # noqa: B027 - most engines have nothing to do
        """Something to do now and then."""

    def _may_be_drained(self) -> bool:
        """Whether it is worth asking the database."""
        return True

    @abstractmethod
    def _close(self) -> None:
        """All threads have ended."""

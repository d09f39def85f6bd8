"""The local engine: every group of an app in threads of this process, handlers in processes of their own."""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Sequence

from penstock.engine.counters import Counters
from penstock.engine.declaring import declare
from penstock.engine.subscription import Subscription
from penstock.engine.waiting import AWAY
from penstock.engine.watch import Watch
from penstock.engine.worker import Worker
from penstock.log.log import Log

logger = logging.getLogger("penstock")
_REAP_SECONDS = 5.0
_SWITCH_SECONDS = 0.0005
_LOOK_SECONDS = 0.05  # between two looks at whether everything is drained


class LocalEngine:
    """Runs subscriptions until it is stopped, or until their groups are drained.

    `start`, then `wait`; `stop` may be called by any thread, and by a signal handler.
    """

    def __init__(
        self, log: Log, subscriptions: Sequence[Subscription], *, until_drained: bool = False, name: str | None = None
    ) -> None:
        self._log = log
        self._name = name or f"{socket.gethostname()}/{os.getpid()}"
        self._until_drained = until_drained
        self._watch = Watch()
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._began = time.monotonic()
        self._switch_seconds = sys.getswitchinterval()
        self.counters = {one.name: Counters() for one in subscriptions}
        self.paused: dict[str, str] = {}  # groups that could not be drained, and why
        self._workers = [
            Worker(log, one, f"{self._name}/{one.group}", self._watch, self.counters[one.name]) for one in subscriptions
        ]
        self._threads = [
            threading.Thread(target=self._run, args=(worker,), name=f"penstock-{worker.subscription.name}", daemon=True)
            for worker in self._workers
        ]
        self._keeper = threading.Thread(target=self._keep, name="penstock-keeper", daemon=True)

    def start(self) -> None:
        """Declare the groups and begin to work."""
        for worker in self._workers:
            declare(self._log, worker.subscription, self._name)
        self._watch.start()
        # A handler that computes gives way to the thread that reads ahead; at the interpreter's own pace that thread
        # would wait 5 ms for each of its many small steps.
        self._switch_seconds = sys.getswitchinterval()
        sys.setswitchinterval(min(self._switch_seconds, _SWITCH_SECONDS))
        for thread in self._threads:
            thread.start()
        self._keeper.start()

    def stop(self) -> None:
        """End gracefully: running handlers get their time, what was never started goes back. Returns at once."""
        self._stopping.set()
        for worker in self._workers:
            worker.stop()

    def wait(self, seconds: float | None = None) -> bool:
        """Return True when all work has ended; raises what ended it, if that was an error."""
        if not self._ended.wait(seconds):
            return False
        if self._error is not None:
            raise self._error
        return True

    def snapshot(self) -> dict[str, dict[str, int]]:
        """The counters of every group, as of now."""
        return {name: counters.snapshot() for name, counters in self.counters.items()}

    @property
    def seconds(self) -> float:
        """How long it has been at work."""
        return time.monotonic() - self._began

    @property
    def idle(self) -> bool:
        """Whether no group had anything to do at the last look."""
        return all(worker.idle for worker in self._workers)

    def _run(self, worker: Worker) -> None:
        try:
            worker.run()
        except BaseException as error:
            self._error = self._error or error
            self.stop()

    def _keep(self) -> None:
        """Reap now and then, end a drain when it is done, and clean up behind the workers."""
        next_reap = time.monotonic() + _REAP_SECONDS
        try:
            while any(thread.is_alive() for thread in self._threads) and not self._stopping.wait(_LOOK_SECONDS):
                if time.monotonic() >= next_reap:
                    self._reap()
                    next_reap = time.monotonic() + _REAP_SECONDS
                if self._until_drained and self._drained():
                    self.stop()
        except BaseException as error:
            self._error = self._error or error
            self.stop()
        finally:
            for thread in self._threads:
                thread.join()
            self._watch.stop()
            sys.setswitchinterval(self._switch_seconds)
            self._ended.set()

    def _reap(self) -> None:
        try:
            self._log.reap()
        except AWAY as error:
            logger.warning("reap: %s", error)

    def _drained(self) -> bool:
        """Whether nothing is left in any group, and nobody has appended while we looked."""
        if not self.idle:
            return False
        try:
            before = self._log.end()
            left = [worker.subscription for worker in self._workers if not self._finished(worker.subscription)]
            return not left and self._log.end() == before
        except AWAY:
            return False  # the workers say so, and try again

    def _finished(self, one: Subscription) -> bool:
        (group,) = [group for group in self._log.groups(one.stream) if group.group_name == one.group]
        if group.paused:
            self.paused[one.name] = group.pause_reason or "paused by an operator"
            return True
        self.paused.pop(one.name, None)
        return self._log.drained(one.stream, one.group)

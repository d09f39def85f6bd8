"""The local engine: every group of an app in threads of this process, handlers in processes of their own."""

from __future__ import annotations

import gc
import os
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache, partial

from penstock.declare.groups import declare
from penstock.declare.subscription import Subscription
from penstock.core.observe import Observers, everyone
from penstock.engine.counters import Counters
from penstock.engine.failure_log import FailureLog
from penstock.engine.drain import Drained
from penstock.engine.heartbeat import Watch
from penstock.engine.lookout import LookOut
from penstock.engine.outage import patiently, try_once
from penstock.engine.thread_switch import quick_turns
from penstock.engine.worker import Worker
from penstock.log.log import Log

_REAP_SECONDS = 5.0
_LOOK_SECONDS = 0.05  # between two looks at whether everything is drained


class LocalEngine:
    """Runs subscriptions until it is stopped, or until their groups are drained.

    `start`, then `wait`; `stop` may be called by any thread, and by a signal handler.
    """

    def __init__(
        self,
        log: Log,
        subscriptions: Sequence[Subscription],
        *,
        until_drained: bool = False,
        name: str | None = None,
        run: int | None = None,
    ) -> None:
        self._log = log
        self._name = name or f"{socket.gethostname()}/{os.getpid()}"
        self._until_drained = until_drained
        self._watch = Watch()
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._began = time.monotonic()
        self._turns = ExitStack()
        self.counters = {one.name: Counters() for one in subscriptions}
        self._left = Drained(log, subscriptions)
        self.lookout = LookOut(log)
        self._workers = [
            Worker(
                log,
                one,
                f"{self._name}/{one.group}",
                self._watch,
                Observers(self.counters[one.name], FailureLog(), parent=everyone),
                lookout=self.lookout,
                run_id=run,
            )
            for one in subscriptions
        ]
        self._threads = [
            threading.Thread(target=self._run, args=(worker,), name=f"penstock-{worker.subscription.name}", daemon=True)
            for worker in self._workers
        ]
        self._keeper = threading.Thread(target=self._keep, name="penstock-keeper", daemon=True)

    def start(self) -> None:
        """Declare the groups and begin to work."""
        for worker in self._workers:
            wanted = partial(declare, self._log, worker.subscription, self._name)
            patiently(wanted, worker.subscription.name, worker.observers, self._stopping)
        self._log.store.warm()
        _spare_the_collector()
        self._watch.start()
        self.lookout.start()
        self._turns.enter_context(quick_turns())
        for thread in self._threads:
            thread.start()
        self._keeper.start()

    def stop(self) -> None:
        """End gracefully: running handlers get their time, what was never started goes back. Returns at once."""
        self._stopping.set()
        for worker in self._workers:
            worker.stop()

    def quiet(self, quiet: bool) -> None:
        """Finish what is claimed and claim nothing new; or go on."""
        for worker in self._workers:
            worker.quiet(quiet)

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
        return all(worker.idle is not None for worker in self._workers)

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
            self.lookout.stop()
            self._turns.close()
            self._ended.set()

    def _reap(self) -> None:
        own = [(one.subscription.stream, one.subscription.group) for one in self._workers]
        try_once(lambda: self._log.reap(groups=own), "reap")

    def _drained(self) -> bool:
        return self.idle and self._left.look()

    @property
    def paused(self) -> dict[str, str]:
        """Groups that could not be drained, and why."""
        return self._left.paused


@cache
def _spare_the_collector() -> None:
    """What is loaded by now stays: the collector, for which all threads wait, need not look at it again.

    Once is enough, because what is garbage at that moment stays as well.
    """
    gc.freeze()

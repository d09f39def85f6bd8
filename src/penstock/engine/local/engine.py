"""The local engine: a thread of this process for every group, handlers in child processes."""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache, partial

from penstock.core.observe import Observers, everyone
from penstock.declare.groups import declare, declare_job, declare_schedule
from penstock.declare.job import JobType, ScheduledJob
from penstock.declare.subscription import Subscription
from penstock.engine.counters import Counters
from penstock.engine.drain import Served
from penstock.engine.failure_log import FailureLog
from penstock.engine.heartbeat import Heartbeat
from penstock.engine.jobs.ticks import ScheduleTicks
from penstock.engine.jobs.worker import JobWorker
from penstock.engine.lookout import LookOut
from penstock.engine.maintenance import Engine
from penstock.engine.outage import patiently
from penstock.engine.thread_switch import quick_turns
from penstock.engine.worker import Worker
from penstock.log.log import Log

_OBJECTS = 20_000  # new ones, before the collector looks at them


class LocalEngine(Engine):
    """The engine that runs subscriptions in this process.

    Side effects: Python threads switch more often while it runs, objects that exist at its start are never garbage
    collected, and the collector looks less often.
    """

    def __init__(
        self,
        log: Log,
        subscriptions: Sequence[Subscription] = (),
        jobs: Sequence[JobType] = (),
        schedules: Sequence[ScheduledJob] = (),
        *,
        until_drained: bool = False,
        name: str | None = None,
        run: int | None = None,
    ) -> None:
        served: list[Served] = [*subscriptions, *(one for job in jobs for one in job.served)]
        super().__init__(log, served, until_drained=until_drained)
        self._name = name or f"{socket.gethostname()}/{os.getpid()}"
        self._heartbeat = Heartbeat()
        self._turns = ExitStack()
        self._ticks = ScheduleTicks(log)
        self._schedules = schedules
        names = [*(one.name for one in subscriptions), *(one.name for one in jobs)]
        self.counters = {name: Counters() for name in names}
        self.lookout = LookOut(log)
        self._workers = [
            Worker(
                log,
                one,
                f"{self._name}/{one.group}",
                self._heartbeat,
                Observers(self.counters[one.name], FailureLog(), parent=everyone),
                lookout=self.lookout,
                run_id=run,
            )
            for one in subscriptions
        ]
        self._job_workers = [
            JobWorker(
                log,
                one,
                self._name,
                Observers(self.counters[one.name], FailureLog(), parent=everyone),
                self.lookout,
                run_id=run,
            )
            for one in jobs
        ]

    def start(self) -> None:
        for worker in self._workers:
            wanted = partial(declare, self._log, worker.subscription, self._name)
            patiently(wanted, worker.subscription.name, worker.observers, self._stopping)
        for one in self._schedules:
            patiently(partial(declare_schedule, self._log, one), one.name, everyone, self._stopping)
        for job in self._job_workers:
            patiently(partial(declare_job, self._log, job.job, self._name), job.job.name, job.observers, self._stopping)
        self._log.store.warm()
        _spare_the_collector()
        self._heartbeat.start()
        self.lookout.start()
        self._turns.enter_context(quick_turns())
        for worker in self._workers:
            self._thread(worker.run, f"penstock-{worker.subscription.name}")
        for job in self._job_workers:
            self._thread(job.run, f"penstock-{job.job.name}")
        self._maintain()

    def stop(self) -> None:
        self._stopping.set()
        for worker in self._all():
            worker.stop()

    def quiet(self, quiet: bool) -> None:
        super().quiet(quiet)
        for worker in self._all():
            worker.quiet(quiet)

    def snapshot(self) -> dict[str, dict[str, int]]:
        return {name: counters.snapshot() for name, counters in self.counters.items()}

    @property
    def idle(self) -> bool:
        """Whether the last claim of every group found nothing."""
        return all(worker.idle is not None for worker in self._all())

    def _all(self) -> list[Worker | JobWorker]:
        return [*self._workers, *self._job_workers]

    def _tick(self) -> None:
        """Submit the runs of schedules where jobs are done."""
        if self._job_workers:
            self._ticks.tick()

    def _may_be_drained(self) -> bool:
        return self.idle

    def _close(self) -> None:
        self._heartbeat.stop()
        self.lookout.stop()
        self._turns.close()


@cache
def _spare_the_collector() -> None:
    """Keep the collector, which stops all threads, from scanning what is loaded, and from looking too often.

    Only once per process, because it also keeps whatever is garbage at that moment. A lease makes many thousands of
    objects that are in use until its end: by default the collector would look at them a hundred times.
    """
    gc.freeze()
    first, *others = gc.get_threshold()
    if 0 < first < _OBJECTS:  # 0: the user has switched it off
        gc.set_threshold(_OBJECTS, *others)

"""The Spark engine: one driver that runs handlers and jobs in time slices, and pipelines and queries as Spark jobs."""

from __future__ import annotations

import itertools
import logging
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from penstock.core.lease import Idle
from penstock.core.observe import everyone
from penstock.declare.groups import declare_schedule
from penstock.declare.job import JobType, ScheduledJob
from penstock.declare.pipeline import Pipeline
from penstock.declare.portable import portable
from penstock.declare.query import Query
from penstock.declare.subscription import Subscription
from penstock.engine.counters import NAMES
from penstock.engine.drain import Served
from penstock.engine.heartbeat import Heartbeat
from penstock.engine.jobs.ticks import ScheduleTicks
from penstock.engine.lookout import LookOut
from penstock.engine.maintenance import Engine
from penstock.engine.outage import patiently, try_once
from penstock.errors import AWAY, PenstockError, SparkLost, UnknownGroup, all_errors
from penstock.log.log import Log
from penstock.log.runs import RunCounts
from penstock.spark import secrets
from penstock.spark.causes import failure_of, first_line
from penstock.spark.handlers import time_slice
from penstock.spark.handlers.groups import Sliced, SlicedGroup, most_urgent, next_turn, sliced_queues, wait_asleep
from penstock.spark.handlers.stop import stop_slices
from penstock.spark.jobs import SparkJobs
from penstock.spark.logs import limit_connections
from penstock.spark.session import has_ended
from penstock.spark.slots import count_slots, grows
from penstock.spark.workers import Worker, make_workers

logger = logging.getLogger("penstock")
_SHORT, _LONG = 3.0, 30.0  # seconds of a slice if slots are scarce, and if they are not
_PATIENCE_SHORT, _PATIENCE_LONG = 0.25, 10.0  # seconds without work before a slot is given up
_COUNT_SECONDS = 0.5  # between two readings of the run's counts
_SLOTS_SECONDS = 3.0  # between two countings of the slots
_GONE_SECONDS, _AWAY_SECONDS = 5.0, 1.0  # between two looks at a deleted group, and during an outage
_NAME = f"{socket.gethostname()}/{os.getpid()}"  # the driver's
_OF_LEASES = ("leases", "published", "failed", "dead", "released")  # counts that the leases of a run tell
HANDLERS, PIPELINES = "penstock-handlers", "penstock-pipelines"  # Spark's scheduling pools


class SparkEngine(Engine):
    """The engine that runs an app on a Spark session.

    `run` is its row in `runs`, through which it stops its slices and counts what they did. Without one, slices are
    short and end by themselves.
    """

    drain_look = 0.2

    def __init__(
        self,
        log: Log,
        spark: Any,
        url: str,
        subscriptions: Sequence[Subscription],
        pipelines: Sequence[Pipeline] = (),
        queries: Sequence[Query] = (),
        jobs: Sequence[JobType] = (),
        schedules: Sequence[ScheduledJob] = (),
        *,
        until_drained: bool = False,
        run: int | None = None,
    ) -> None:
        served: list[Served] = [*subscriptions, *pipelines, *queries, *(part for one in jobs for part in one.served)]
        super().__init__(log, served, until_drained=until_drained)
        self._spark = spark
        self._context = spark.sparkContext
        self._url = secrets.hide(spark, url)
        limit_connections(spark)
        self._run_id = run
        self._groups: list[Sliced] = [SlicedGroup(subscription=one, portable=portable(one)) for one in subscriptions]
        self._groups += sliced_queues(jobs)
        self._queues = {one.queue: [job.type for job in jobs if job.queue == one.queue] for one in jobs}
        self._schedules = schedules
        self._ticks = ScheduleTicks(log) if jobs else None
        self._heartbeat = Heartbeat()
        self._lookout = LookOut(log)
        self._workers = make_workers(
            *(log, spark, url, pipelines, queries),
            name=lambda group: f"{_NAME}/{group}",
            heartbeat=self._heartbeat,
            run=run,
            until_drained=until_drained,
        )
        self._numbers = itertools.count(1)
        self._changed = threading.Condition()
        self._quiet = False
        self._slots = 1
        self._places = 1  # tasks to have on Spark at most
        self._servers = 0  # threads that start slices
        self._uncounted = False  # whether slices were at work since the last reading of the counts
        self._count_again = self._slots_again = 0.0
        self._counts: RunCounts | None = None
        self._jobs = SparkJobs(self._context)

    # --- what everybody calls ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Declare the groups and start to work."""
        for group in self._groups:
            patiently(partial(group.declare, self._log, _NAME), group.name, everyone, self._stopping)
        for one in self._schedules:
            patiently(partial(declare_schedule, self._log, one), one.name, everyone, self._stopping)
        for worker in self._workers:
            worker.start()
        if self._run_id is not None and self._groups:
            self._counts = patiently(partial(self._log.count_run, self._run_id), "run", everyone, self._stopping)
        self._heartbeat.start()
        self._lookout.start()
        if self._groups:
            self._count_slots()
        for group in self._groups:
            self._thread(partial(self._sleep, group), f"penstock-sleeper-{group.name}")
        for worker in self._workers:
            self._thread(partial(self._pipe, worker), f"penstock-{worker.served.name}")
        self._maintain()

    def stop(self) -> None:
        """Stop gracefully: running handlers may finish, the rest is released. Returns at once."""
        if not self._stopping.is_set():
            self._stopping.set()
            # In a thread: the caller may be a signal handler, and the interrupted thread may hold our locks.
            threading.Thread(target=self._pass_on_stop, name="penstock-stop", daemon=True).start()

    def _pass_on_stop(self) -> None:
        for worker in self._workers:
            worker.stop()
        with self._changed:
            self._changed.notify_all()
        for group in self._groups:
            group.waiter.woken.set()
        stop_slices(self._log, self._run_id, self._jobs, self._ended)

    def quiet(self, quiet: bool) -> None:
        """Start no new slices; running ones finish what they have claimed. Pipelines continue. False to resume."""
        super().quiet(quiet)
        self._quiet = quiet
        with self._changed:
            self._changed.notify_all()

    def snapshot(self) -> dict[str, dict[str, int]]:
        """Return the counters of every group, as of the last reading."""
        with self._changed:
            counts = {name: self._counted(group, name) for group in self._groups for name in group.leases}
        return counts | {one.served.name: one.counters.snapshot() for one in self._workers}

    def _counted(self, group: Sliced, name: str) -> dict[str, int]:
        """Leases tell even of slices that were lost; what they do not tell comes from slices that have ended."""
        reported = group.reported.get(name, Counter())
        counts = {what: reported[what] for what in NAMES}
        if self._counts is not None:
            of_leases = [self._counts.groups.get(one, Counter()) for one in group.leases[name]]
            counts |= {what: sum(one[what] for one in of_leases) for what in _OF_LEASES}
        return counts

    # --- slots ---------------------------------------------------------------------------------------------------

    def _count_slots(self) -> None:
        """Have a thread for every slot; with dynamic allocation one more, whose waiting task asks for an executor."""
        if time.monotonic() < self._slots_again or self._stopping.is_set():
            return
        self._slots_again = time.monotonic() + _SLOTS_SECONDS
        try:
            slots, more = count_slots(self._context), grows(self._context)
        except Exception as error:
            raise SparkLost(f"Spark has stopped: {first_line(error)}.") from error
        with self._changed:
            self._slots = max(1, slots)
            self._places = self._slots + more
            while self._servers < self._places:
                self._thread(partial(self._serve, self._servers), f"penstock-slot-{self._servers}")
                self._servers += 1

    def _serve(self, place: int) -> None:
        """Serve one slot: run slice after slice, for the group that has the fewest."""
        while (begun := self._next(place)) is not None:
            group, ticket = begun
            report = self._run(group, ticket)
            with self._changed:
                group.end(ticket.number, report)
                self._changed.notify_all()
            if report is not None and report.error is not None:
                code, message = report.error
                raise all_errors().get(code, PenstockError)(message)

    def _next(self, place: int) -> tuple[Sliced, time_slice.Ticket] | None:
        """Wait for a group that may work, and begin a slice of it; None when stopping, or when this slot is gone."""
        with self._changed:
            while not self._stopping.is_set():
                if place >= self._places and place == self._servers - 1:
                    self._servers -= 1
                    return None
                group = None if self._quiet or place >= self._places else self._most_urgent()
                if group is not None:
                    self._uncounted = True
                    return group, self._ticket(group)
                self._changed.wait(next_turn(self._groups))
        return None

    def _most_urgent(self) -> Sliced | None:
        """Choose who has the next slice: nobody a second one in the slot that a busy pipeline needs."""
        running = sum(len(one.running) for one in self._groups)
        busy = sum(one.busy for one in self._workers)
        room = busy == 0 or running < max(1, self._slots - 1)
        return most_urgent(self._groups, room, self._slots - running, bool(self._workers))

    def _ticket(self, group: Sliced) -> time_slice.Ticket:
        number = next(self._numbers)
        only = group.begin(number)
        scarce = len(self._groups) + len(self._workers) > self._slots
        seconds = _SHORT if scarce or self._run_id is None else _LONG
        patience = _PATIENCE_SHORT if scarce or not only else _PATIENCE_LONG
        return time_slice.Ticket(number, group.key, self._url, group.work, seconds, patience, self._run_id)

    def _run(self, group: Sliced, ticket: time_slice.Ticket) -> time_slice.SliceReport | None:
        """Run one slice as a Spark job of one task; None if the Spark job failed, whatever the cause."""
        try:
            self._context.setLocalProperty("spark.scheduler.pool", HANDLERS)
            with self._jobs.job(f"{group.name}: slice {ticket.number}"):
                (report,) = self._context.parallelize([ticket], 1).mapPartitions(time_slice.work).collect()
        except Exception as error:
            if has_ended(self._context):
                raise SparkLost(f"Spark has stopped: {first_line(error)}.") from error
            if not self._stopping.is_set():
                logger.warning("%s: a slice was lost: %s", group.name, failure_of(error).message)
            return None
        assert isinstance(report, time_slice.SliceReport)
        return report

    def _sleep(self, group: Sliced) -> None:
        """Watch the log for a group without work, and wake it when a claim may find something."""
        while (idle := wait_asleep(group, self._changed, self._stopping)) is not None:
            self._lookout.wait(group.waiter, idle, self._stopping)
            found = None if self._stopping.is_set() else self._idle(group)
            with self._changed:
                group.asleep = found
                self._changed.notify_all()

    def _idle(self, group: Sliced) -> Idle | None:
        """Look whether there is work for the group, so that appends to other streams start no slices."""
        try:
            return group.look(self._log)
        except UnknownGroup:  # deleted during the run: whoever recreates it chooses its start
            return Idle(None, seconds=_GONE_SECONDS)
        except AWAY:
            return Idle(None, seconds=_AWAY_SECONDS)

    # --- pipelines and the rest ----------------------------------------------------------------------------------

    def _pipe(self, worker: Worker) -> None:
        self._context.setLocalProperty("spark.scheduler.pool", PIPELINES)
        worker.run()

    def _may_be_drained(self) -> bool:
        """One look at all streams of a queue, which are ten for every type, is cheaper than a look at each."""
        if not all(worker.caught_up for worker in self._workers):
            return False
        return not try_once(self._jobs_are_due, "jobs")

    def _jobs_are_due(self) -> bool:
        claims = self._log.job_claims
        return any(claims.look(claims.wanted(types, queue))[0] for queue, types in self._queues.items())

    def _tick(self) -> None:
        if not self._groups:
            return
        self._count_slots()
        if self._ticks is not None:
            self._ticks.tick()
        if self._uncounted and time.monotonic() >= self._count_again:
            self._count_again = time.monotonic() + _COUNT_SECONDS
            with self._changed:
                self._uncounted = any(one.running for one in self._groups)
            self._read_counts()

    def _read_counts(self) -> None:
        if self._counts is not None:
            try_once(self._counts.read, "run")

    def _fail(self, error: BaseException) -> None:
        """Spark that ends while we stop, by a signal to all processes, is no error: leases expire or are released."""
        if isinstance(error, SparkLost) and self._stopping.is_set():
            logger.warning("%s", error)
            return
        super()._fail(error)

    def _close(self) -> None:
        self._read_counts()
        self._lookout.stop()
        self._heartbeat.stop()

"""The Spark engine: one driver that runs handlers as time slices in the slots, and pipelines as Spark jobs."""

from __future__ import annotations

import itertools
import logging
import math
import os
import socket
import threading
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.core.limits import POLL_FIRST_SECONDS, POLL_MOST_SECONDS
from penstock.core.observe import everyone
from penstock.declare.groups import declare
from penstock.declare.pipeline import Pipeline
from penstock.declare.portable import PortableSubscription, portable
from penstock.declare.subscription import Subscription
from penstock.engine.counters import NAMES
from penstock.engine.heartbeat import Heartbeat
from penstock.engine.maintenance import Engine
from penstock.engine.outage import patiently
from penstock.errors import AWAY, PenstockError, SparkLost, all_errors
from penstock.log.log import Log
from penstock.spark import secrets
from penstock.spark.causes import first_line
from penstock.spark.handlers import time_slice
from penstock.spark.handlers.control import Counts, Switchboard
from penstock.spark.session import has_ended

if TYPE_CHECKING:
    from penstock.spark.pipelines.worker import PipelineWorker

logger = logging.getLogger("penstock")
_SHORT = 3.0  # seconds of a slice if slots are scarce
_LONG = 30.0  # and if they are not
_PATIENCE = 0.25  # seconds without work before a scarce slot is given up
_RETRY_SECONDS = (0.2, 10.0)  # after a lost slice: first and longest pause; it doubles
_NAME = f"{socket.gethostname()}/{os.getpid()}"  # the driver's
HANDLERS, PIPELINES = "penstock-handlers", "penstock-pipelines"  # Spark's scheduling pools


@dataclass(slots=True)
class _Group:
    """A group with handlers, as the driver sees it."""

    subscription: Subscription
    portable: PortableSubscription
    key: str  # under which Python workers cache what they opened for it
    past: Counter[str] = field(default_factory=Counter)
    running: dict[int, Counts] = field(default_factory=dict)  # counts by slice number
    wanted: float = 0.0  # no new slice before this time …
    grown: float = math.inf  # … unless the log grows beyond this offset
    pause: float = 0.0  # seconds, after a lost slice
    began: float = 0.0  # start of its last slice
    idle: bool = False


class SparkEngine(Engine):
    """The engine that runs an app on a Spark session."""

    tick = POLL_FIRST_SECONDS
    drain_look = 0.2

    def __init__(
        self,
        log: Log,
        spark: Any,
        url: str,
        subscriptions: Sequence[Subscription],
        pipelines: Sequence[Pipeline] = (),
        *,
        until_drained: bool = False,
    ) -> None:
        super().__init__(log, [*subscriptions, *pipelines], until_drained=until_drained)
        self._spark = spark
        self._context = spark.sparkContext
        self._url = secrets.hide(spark, url)
        self._groups = [_Group(one, portable(one), uuid.uuid4().hex) for one in subscriptions]
        self._heartbeat = Heartbeat()
        self._pipelines = [self._worker(one, url) for one in pipelines]
        self._numbers = itertools.count(1)
        self._changed = threading.Condition()
        self._quiet = False
        self._end = 0  # of the log; updated while a group is idle
        self._switchboard: Switchboard | None = None

    # --- what everybody calls ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Declare the groups and start to work."""
        for group in self._groups:
            wanted = partial(declare, self._log, group.subscription, _NAME)
            patiently(wanted, group.subscription.name, everyone, self._stopping)
        for worker in self._pipelines:
            worker.start()
        self._heartbeat.start()
        conf = self._context.getConf()
        self._switchboard = Switchboard(conf.get("spark.driver.host", "127.0.0.1"), self._on_counts)
        for number in range(self._slots() if self._groups else 0):
            self._thread(self._serve, f"penstock-slot-{number}")
        for worker in self._pipelines:
            self._thread(partial(self._pipe, worker), f"penstock-{worker.pipeline.name}")
        self._maintain()

    def stop(self) -> None:
        """Stop gracefully: running handlers may finish, the rest is released. Returns at once."""
        self._stopping.set()
        # In a thread: the caller may be a signal handler, and the interrupted thread may hold our locks.
        threading.Thread(target=self._pass_on_stop, name="penstock-stop", daemon=True).start()

    def _pass_on_stop(self) -> None:
        if self._switchboard is not None:
            self._switchboard.stop()
        for worker in self._pipelines:
            worker.stop()
        with self._changed:
            self._changed.notify_all()

    def quiet(self, quiet: bool) -> None:
        """Start no new slices; running ones end when their time is up. Pipelines continue. False to resume."""
        self._quiet = quiet
        with self._changed:
            self._changed.notify_all()

    def snapshot(self) -> dict[str, dict[str, int]]:
        """Return the counters of every group, as of the last reports."""
        with self._changed:
            counts = {group.subscription.name: _sum(group) for group in self._groups}
        return counts | {one.pipeline.name: one.counters.snapshot() for one in self._pipelines}

    # --- slots ---------------------------------------------------------------------------------------------------

    def _slots(self) -> int:
        return max(1, int(self._context.defaultParallelism))

    def _serve(self) -> None:
        """Serve one slot: run slice after slice, for the group that has the fewest."""
        self._context.setLocalProperty("spark.scheduler.pool", HANDLERS)
        while (group := self._next()) is not None:
            number = next(self._numbers)
            ticket = self._ticket(group, number)
            with self._changed:
                group.running[number] = {}
                group.began = time.monotonic()
            report = self._run(group, ticket)
            with self._changed:
                counts = group.running.pop(number)
                group.past.update(counts if report is None else report.counts)
                self._plan(group, report)
                self._changed.notify_all()
            if report is not None and report.error is not None:
                code, message = report.error
                raise all_errors().get(code, PenstockError)(message)

    def _next(self) -> _Group | None:
        """Wait for a group that may work, and return it; None when stopping."""
        with self._changed:
            while not self._stopping.is_set():
                ready = self._ready()
                if ready:
                    return min(ready, key=lambda one: (len(one.running), one.began))
                self._changed.wait(POLL_FIRST_SECONDS)
        return None

    def _ready(self) -> list[_Group]:
        if self._quiet:
            return []
        now, room = time.monotonic(), not self._crowded()
        return [
            one
            for one in self._groups
            if (one.wanted <= now or self._end > one.grown) and (not one.running or (room and not one.idle))
        ]

    def _crowded(self) -> bool:
        """Whether a second slice of a group would take the slot that a busy pipeline needs."""
        running = sum(len(one.running) for one in self._groups)
        busy = sum(one.busy for one in self._pipelines)
        return busy > 0 and running >= max(1, self._slots() - 1)

    def _ticket(self, group: _Group, number: int) -> time_slice.Ticket:
        assert self._switchboard is not None
        scarce = len(self._groups) + len(self._pipelines) > self._slots()
        seconds, patience = (_SHORT, _PATIENCE) if scarce else (_LONG, _LONG)
        line = self._switchboard.line
        return time_slice.Ticket(number, group.key, self._url, group.portable, seconds, patience, line)

    def _run(self, group: _Group, ticket: time_slice.Ticket) -> time_slice.SliceReport | None:
        """Run one slice as a Spark job of one task; None if the Spark job failed, whatever the cause."""
        self._context.setJobDescription(f"{group.subscription.name}: slice {ticket.number}")
        try:
            (report,) = self._context.parallelize([ticket], 1).mapPartitions(time_slice.work).collect()
        except Exception as error:
            if has_ended(self._context):
                raise SparkLost(f"Spark has stopped: {first_line(error)}.") from error
            logger.warning("%s: a slice was lost: %s", group.subscription.name, first_line(error))
            return None
        assert isinstance(report, time_slice.SliceReport)
        return report

    def _plan(self, group: _Group, report: time_slice.SliceReport | None) -> None:
        """Decide when the group may have its next slice."""
        group.pause = 0.0 if report is not None else min(max(_RETRY_SECONDS[0], 2 * group.pause), _RETRY_SECONDS[1])
        idle = None if report is None else report.idle
        group.idle, group.grown, nap = idle is not None, math.inf, group.pause
        if idle is not None:
            waits = idle.paused or idle.horizon < idle.end  # for an operator, or for an append that is still open
            nap = POLL_MOST_SECONDS if waits else math.inf if idle.seconds is None else idle.seconds
            group.grown = idle.end
        group.wanted = time.monotonic() + nap

    def _on_counts(self, number: int, counts: Counts) -> None:
        with self._changed:
            for group in self._groups:
                if number in group.running:
                    group.running[number] = counts

    # --- pipelines and the rest ----------------------------------------------------------------------------------

    def _worker(self, pipeline: Pipeline, url: str) -> PipelineWorker:
        from penstock.spark.pipelines.worker import PipelineWorker  # imports what only DataFrames need

        return PipelineWorker(self._log, self._spark, url, pipeline, f"{_NAME}/{pipeline.group}", self._heartbeat)

    def _pipe(self, worker: PipelineWorker) -> None:
        self._context.setLocalProperty("spark.scheduler.pool", PIPELINES)
        worker.run()

    def _tick(self) -> None:
        self._wake_sleepers()

    def _close(self) -> None:
        if self._switchboard is not None:
            self._switchboard.close()
        self._heartbeat.stop()

    def _wake_sleepers(self) -> None:
        """Wake idle groups when the log grows."""
        if all(one.running or one.grown == math.inf for one in self._groups):
            return
        with suppress(*AWAY):
            end = self._log.end()
            with self._changed:
                self._end = end
                self._changed.notify_all()


def _sum(group: _Group) -> dict[str, int]:
    counts = group.past.copy()
    for running in group.running.values():
        counts.update(running)
    return {name: counts[name] for name in NAMES}

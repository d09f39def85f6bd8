"""The loop of one pipeline: claim a batch, run the function over it, stage its rows, settle and move them.

The driver holds no events: tasks read the batch and stage the results under unique names, and the settle moves those
that count. A driver that dies leaves a lease that expires, and staged rows that are never used. Several batches are in
flight, each in a thread with its own lease, Spark jobs and settle.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from penstock.core.lease import Idle
from penstock.core.limits import POLL_MOST_SECONDS
from penstock.core.observe import Claimed, Observers, everyone
from penstock.core.signals import Unavailable
from penstock.declare.pipeline import Pipeline, declare_pipeline
from penstock.engine.counters import Counters
from penstock.engine.heartbeat import Heartbeat
from penstock.engine.idle import IdlePoll
from penstock.engine.outage import patiently, try_once
from penstock.errors import AWAY, OrderedGroup
from penstock.log.lease import Lease
from penstock.log.log import Log
from penstock.spark.pipelines.batch import Batches
from penstock.spark.pipelines.sinks.base import SinkWriter
from penstock.spark.pipelines.sinks.choose import pipeline_writer
from penstock.spark.secrets import hide
from penstock.spark.session import check_classic, check_master

logger = logging.getLogger("penstock")
_GRACE_SECONDS = 5.0  # for running batches to finish after a stop
_CLEAN_SECONDS = 60.0  # between two cleanups of what lost attempts staged


class PipelineWorker:
    """The worker of one pipeline. One thread calls `run`; any thread may call `stop`."""

    def __init__(
        self,
        log: Log,
        spark: Any,
        url: str,
        pipeline: Pipeline,
        claimed_by: str,
        heartbeat: Heartbeat,
        run: int | None = None,
    ) -> None:
        self.log = log
        self.pipeline = pipeline
        self.counters = Counters()
        self._observers = Observers(self.counters, parent=everyone)
        self.idle = False  # the last claim found nothing
        self._spark = check_classic(spark)
        self._claimed_by = claimed_by
        self._heartbeat = heartbeat
        self._run_id = run
        self._stopping = threading.Event()
        self._ended = threading.Event()
        safe_url = hide(spark, log.store.url or url)  # the store's URL has an absolute path
        self._sink: SinkWriter = pipeline_writer(log, safe_url, pipeline, spark)
        self._batches = Batches(log, spark, safe_url, pipeline, self._sink, heartbeat, self._observers, self._stopping)
        self._claiming = threading.Lock()  # one thread looks for work
        self._waiting = IdlePoll(log, self._stopping)
        self._full = True  # the last claim took all it wanted: there may be more
        self._working = 0
        self._changing = threading.Lock()
        self._tidying = threading.Lock()
        self._started = self._unfinished = False
        self._next_clean = 0.0
        self._error: BaseException | None = None

    @property
    def served(self) -> Pipeline:
        """The group it works for."""
        return self.pipeline

    @property
    def caught_up(self) -> bool:
        """Always: what it has left to do is in the log."""
        return True

    @property
    def busy(self) -> bool:
        """Whether a batch is running."""
        return self._working > 0

    def start(self) -> None:
        """Declare the group, and check function and sink before anything is claimed.

        Calls the function once with an empty batch, to see the columns of its result.
        """
        pipeline = self.pipeline
        check_master(self._spark.sparkContext.master, self.log.store.url)
        for group in self.log.groups(pipeline.stream):
            if group.group_name == pipeline.group and group.ordered:
                raise OrderedGroup(f"The group {pipeline.name} is ordered, and pipelines cannot keep an order.")
        self._batches.check()
        declare_pipeline(self.log, pipeline, self._claimed_by)
        self._started = self._unfinished = True

    def stop(self) -> None:
        """Stop after the running batches; release those that take longer than `_GRACE_SECONDS`."""
        if not self._stopping.is_set():
            self._stopping.set()
            threading.Thread(target=self._hurry, name="penstock-hurry", daemon=True).start()

    def _hurry(self) -> None:
        """Cancel what still runs after the grace period, and what starts late."""
        while self.busy and not self._ended.wait(_GRACE_SECONDS):
            self._batches.spark_jobs.cancel()

    def run(self) -> None:
        """Claim, run and settle until stopped, as many batches side by side as the pipeline allows."""
        if not self._started:
            self.start()
        self._batches.spark_jobs.use_pool()
        threads = [
            threading.Thread(target=self._serve, name=f"penstock-{self.pipeline.name}-{place}", daemon=True)
            for place in range(self._batches.in_flight)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._ended.set()
        if self._error is not None:
            raise self._error
        self._tidy()

    def _serve(self) -> None:
        """Run batch after batch; an error ends the pipeline."""
        try:
            while (lease := self._next()) is not None:
                try:
                    if self._batches.work(lease):
                        self._unfinished = True
                finally:
                    self._count(-1)
        except BaseException as error:
            self._error = self._error or error
            self.stop()

    # --- claim ---------------------------------------------------------------------------------------------------

    def _next(self) -> Lease | None:
        """Wait for a batch; None when stopping."""
        self._tidy()
        with self._claiming:
            while not self._stopping.is_set():
                self._linger()
                found = self._claim()
                self.idle = isinstance(found, Idle)
                if isinstance(found, Lease):
                    self._waiting.found()
                    return found
                self._waiting.wait(found)
                self._tidy()
        return None

    def _claim(self) -> Lease | Idle:
        """Claim; heartbeats start at once."""
        pipeline, limit, began = self.pipeline, self._batches.pace.limit, time.monotonic()
        found = patiently(
            lambda: self.log.try_claim_unread(
                pipeline.stream, pipeline.group, limit=limit, claimed_by=self._claimed_by, run=self._run_id
            ),
            *(pipeline.name, self._observers, self._stopping),
        )
        if not isinstance(found, Lease):
            self._full = False
            return found or Idle(None)
        self._full = found.row.members >= limit
        self._count(1)
        self._heartbeat.keep(found, pipeline.lease_seconds)
        self._observers.emit(Claimed(pipeline.name, found.id, found.row.members, time.monotonic() - began))
        return found

    def _linger(self) -> None:
        """Let a trickle gather, unless a batch is full or the last one was."""
        if self._full or not self.pipeline.linger_seconds:
            return
        until = time.monotonic() + self.pipeline.linger_seconds
        begin = try_once(self.log.end, self.pipeline.name) or 0
        while (left := until - time.monotonic()) > 0 and not self._stopping.wait(min(left, POLL_MOST_SECONDS)):
            if (try_once(self.log.end, self.pipeline.name) or 0) - begin >= self._batches.pace.limit:
                return

    def _count(self, step: int) -> None:
        with self._changing:
            self._working += step

    # --- around it -----------------------------------------------------------------------------------------------

    def _tidy(self) -> None:
        """Complete what settles left to do, and drop what will never be used."""
        with self._tidying:
            try:
                if self._unfinished:
                    self._unfinished = False
                    self._sink.finish()
                if time.monotonic() >= self._next_clean:
                    self._next_clean = time.monotonic() + _CLEAN_SECONDS
                    self._sink.clean()
            except (Unavailable, OSError, *AWAY) as error:
                self._unfinished = True
                logger.warning("%s: %s", self.pipeline.name, error)

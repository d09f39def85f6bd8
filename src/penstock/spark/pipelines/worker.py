"""The loop of one pipeline: claim a batch, run the function over it, stage its rows, settle and move them.

The driver holds no events: tasks read the batch and stage the results under unique names, and the settle moves those
that count. A driver that dies leaves a lease that expires, and staged rows that are never used.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from penstock.core import codec
from penstock.core.lease import Failure, Idle, LeaseRow, Settled, Settlement
from penstock.core.limits import SUSPECT_PIECES
from penstock.core.observe import Claimed, LeaseEnded, Observers, everyone
from penstock.core.signals import Unavailable
from penstock.declare.pipeline import Pipeline, declare_pipeline
from penstock.engine.counters import Counters
from penstock.engine.heartbeat import Heartbeat
from penstock.engine.idle import IdlePoll
from penstock.engine.outage import patiently
from penstock.errors import AWAY, InvalidPipeline, LeaseLost, OrderedGroup, PenstockError, StoreUnavailable
from penstock.log.lease import Lease
from penstock.log.log import Log
from penstock.log.pipelines import PipelineStore
from penstock.spark.causes import first_line
from penstock.spark.pipelines.bisect import Result, Worked, isolate
from penstock.spark.pipelines.failures import ERROR, check_result, failures, succeeded
from penstock.spark.pipelines.frames import COLUMNS, UNREAD, empty_frame, frame, used_columns
from penstock.spark.pipelines.sinks.base import Aside, SinkWriter
from penstock.spark.pipelines.sinks.choose import writer_for
from penstock.spark.pipelines.spark_jobs import SparkJobFailed, SparkJobs
from penstock.spark.secrets import hide
from penstock.spark.session import check_classic, check_master

T = TypeVar("T")
logger = logging.getLogger("penstock")
_GRACE_SECONDS = 5.0  # for a running batch to finish after a stop
_CLEAN_SECONDS = 60.0  # between two cleanups of what lost attempts staged
_PARTITION = 100_000  # most events per task: another task costs as much as 20,000 events


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
    ) -> None:
        self.log = log
        self.pipeline = pipeline
        self.counters = Counters()
        self._observers = Observers(self.counters, parent=everyone)
        self.idle = False  # the last claim found nothing
        self.busy = False  # a batch is running
        self._spark = check_classic(spark)
        self._url = hide(spark, log.store.url or url)  # the store's URL has an absolute path
        self._claimed_by = claimed_by
        self._heartbeat = heartbeat
        self._spark_jobs = SparkJobs(spark, pipeline.name)
        self._sink: SinkWriter = writer_for(log, self._url, pipeline.sink)
        self._names: list[str] | None = None  # of the result's columns
        self._columns: Sequence[str] = COLUMNS  # of the events, to read
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._limit = pipeline.batch_size
        self._careful_upto = 0  # batches do not grow until they pass this offset
        self._unfinished = False
        self._next_clean = 0.0

    @property
    def served(self) -> Pipeline:
        """The group it works for."""
        return self.pipeline

    def start(self) -> None:
        """Declare the group, and check function and sink before anything is claimed.

        Calls the function once with an empty batch, to see the columns of its result.
        """
        pipeline = self.pipeline
        check_master(self._spark.sparkContext.master, self.log.store.url)
        for group in self.log.groups(pipeline.stream):
            if group.group_name == pipeline.group and group.ordered:
                raise OrderedGroup(f"The group {pipeline.name} is ordered, and pipelines cannot keep an order.")
        name = getattr(pipeline.function, "__qualname__", repr(pipeline.function))
        try:
            result = pipeline.function(empty_frame(self._spark))
            schema = check_result(result, name)
        except PenstockError:
            raise
        except Exception as error:
            raise InvalidPipeline(f"{name} fails with an empty batch: {first_line(error)}") from error
        self._sink.check(self._for_sink(result).schema)
        self._names = schema.names
        self._columns = used_columns(self._spark, pipeline.function)
        declare_pipeline(self.log, pipeline, self._claimed_by)
        self._unfinished = True

    def stop(self) -> None:
        """Stop after the running batch; release it if it takes longer than `_GRACE_SECONDS`."""
        if not self._stopping.is_set():
            self._stopping.set()
            threading.Thread(target=self._hurry, name="penstock-hurry", daemon=True).start()

    def _hurry(self) -> None:
        """Cancel what still runs after the grace period, and what starts late."""
        while self.busy and not self._ended.wait(_GRACE_SECONDS):
            self._spark_jobs.cancel()

    def run(self) -> None:
        """Claim, run and settle until stopped."""
        if self._names is None:
            self.start()
        waiting = IdlePoll(self.log, self._stopping)
        try:
            while not self._stopping.is_set():
                self._tidy()
                found = self._claim()
                self.idle = isinstance(found, Idle)
                if isinstance(found, Idle):
                    waiting.wait(found)
                    continue
                waiting.found()
                self._work(found)
                self.busy = False
            self._tidy()
        finally:
            self.busy = False
            self._ended.set()

    # --- claim ---------------------------------------------------------------------------------------------------

    def _claim(self) -> Lease | Idle:
        """Claim; heartbeats start at once."""
        pipeline = self.pipeline
        found = self._patiently(
            lambda: self.log.try_claim_unread(
                pipeline.stream, pipeline.group, limit=self._limit, claimed_by=self._claimed_by
            )
        )
        if not isinstance(found, Lease):
            return found or Idle(None)
        self.busy = True
        self._heartbeat.keep(found, pipeline.lease_seconds)
        self._observers.emit(Claimed(pipeline.name, found.id, found.row.members))
        return found

    # --- run -----------------------------------------------------------------------------------------------------

    def _work(self, lease: Lease) -> None:
        row = lease.row
        if self._stopping.is_set():
            self._release(lease)
            return
        try:
            worked = isolate(row, self._partitions(row), self._run_function, self._members, self._stopping.is_set)
        except BaseException as error:  # Spark has stopped, or a bug of ours: blame no event
            self._release(lease)
            if not isinstance(error, AWAY):
                raise
            return
        if worked.rest == 0 and worked.away is None:
            self._release(lease)
        else:
            self._settle(lease, worked)
        if worked.away is not None:
            self._warn(worked.away)
        elif worked.rest is not None and not self._stopping.is_set():
            self._shrink(row)  # too many culprits for `PIPELINE_JOBS`

    def _partitions(self, row: LeaseRow) -> int:
        slots = max(1, int(self._spark.sparkContext.defaultParallelism))
        return max(1, min(max(slots, -(-row.members // _PARTITION)), -(-row.members // 100)))

    def _members(self, row: LeaseRow) -> list[int]:
        found = self._patiently(lambda: PipelineStore(self.log.store).offsets(row))
        if found is None:
            raise StoreUnavailable(f"Lease {row.id} was given up: the pipeline stopped during a database outage.")
        return found

    def _run_function(self, piece: LeaseRow, pieces: Sequence[LeaseRow], tolerated: int) -> Result:
        def work() -> Result:
            result = self.pipeline.function(frame(self._spark, self._url, pieces, self._columns))
            names = check_result(result, self.pipeline.name).names
            if names != self._names:
                raise InvalidPipeline(f"The result has the columns {names}, and had {self._names} at the start.")
            if ERROR not in names:
                return Result(list(self._sink.write(result, piece)))
            kept = result.persist()  # failures and written rows must come from one evaluation
            try:
                failed = failures(kept, piece)
                rows = succeeded(self._spark, kept, failed).drop(*self._sink.without)
                return Result(list(self._sink.write(rows, piece)), failed)
            finally:
                kept.unpersist()

        try:
            return self._spark_jobs.run(work, pieces=len(pieces), tolerated=tolerated)
        except SparkJobFailed as error:
            if UNREAD not in error.failure.message or self._columns == COLUMNS:
                raise
            logger.warning("%s: %s; reading all columns from now on", self.pipeline.name, error.failure.message)
            self._columns = COLUMNS
            return self._spark_jobs.run(work, pieces=len(pieces), tolerated=tolerated)

    def _for_sink(self, result: Any) -> Any:
        return result.drop(ERROR, *self._sink.without) if ERROR in result.columns else result

    # --- settle --------------------------------------------------------------------------------------------------

    def _settle(self, lease: Lease, worked: Worked) -> None:
        row = lease.row
        settlement = Settlement(
            failed=worked.failed,
            released=worked.released(row),
            upto=worked.upto(row),
            moves=[one.name for one in worked.aside],
            unavailable=worked.away,
        )
        settled = self._patiently(lambda: self._report(lease, settlement, worked.aside))
        self._heartbeat.drop(lease)
        if settled is None:
            return
        self._observers.emit(LeaseEnded(self.pipeline.name, lease.id, settled))
        self._unfinished = self._unfinished or bool(worked.aside)
        if settled.published:
            self._grow(row)

    def _report(self, lease: Lease, settlement: Settlement, aside: Sequence[Aside]) -> Settled:
        """Settle; if that is impossible, release the lease and claim smaller ones until the culprit is alone."""
        row = lease.row
        try:
            return self.log.settle(row.id, row.token, settlement, move=self._sink.move(row, aside))
        except (LeaseLost, *AWAY):
            raise
        except Exception as error:
            logger.warning("%s: the settle failed: %s", self.pipeline.name, first_line(error))
            refused = self._refused()
            if refused is not None:  # the table has changed: no event is to blame
                self._warn(refused)
                return self.log.settle(row.id, row.token, self._nothing_done(row, refused))
            if row.members == 1:
                text = error.message if isinstance(error, PenstockError) else codec.error_text(error)
                failure = Failure(codec.error_code(error), codec.error_text(f"settle_failed: {text}"))
                (only,) = self._members(row)
                return self.log.settle(row.id, row.token, Settlement(failed={only: failure}, upto=row.high))
            self._shrink(row)
            return lease.release()

    def _nothing_done(self, row: LeaseRow, why: Failure) -> Settlement:
        """Release everything and open the group's circuit."""
        return Settlement(released=frozenset(row.offsets or ()), upto=row.low, unavailable=why)

    def _refused(self) -> Failure | None:
        """Check the sink again; return why it refuses all rows, if it does."""
        try:
            self._sink.check(self._for_sink(self.pipeline.function(empty_frame(self._spark))).schema)
        except Exception as error:
            return Failure(codec.error_code(error), codec.error_text(error))
        return None

    def _release(self, lease: Lease) -> None:
        self._heartbeat.drop(lease)
        released = self._patiently(lease.release)
        if released is not None:
            self._observers.emit(LeaseEnded(self.pipeline.name, lease.id, released))

    # --- pace ----------------------------------------------------------------------------------------------------

    def _shrink(self, row: LeaseRow) -> None:
        """Claim less at once until the dangerous event of this lease is alone."""
        self._limit = max(1, row.members // SUSPECT_PIECES)
        self._careful_upto = max(self._careful_upto, row.high or 0)

    def _grow(self, row: LeaseRow) -> None:
        if row.high is not None and row.high >= self._careful_upto:
            self._limit = min(self.pipeline.batch_size, self._limit * SUSPECT_PIECES)

    def _warn(self, why: Failure) -> None:
        logger.warning(
            "%s: no progress possible (%s); retrying with one event at a time", self.pipeline.name, why.message
        )

    # --- around it -----------------------------------------------------------------------------------------------

    def _tidy(self) -> None:
        """Complete what settles left to do, and drop what will never be used."""
        try:
            if self._unfinished:
                self._sink.finish()
                self._unfinished = False
            if time.monotonic() >= self._next_clean:
                self._next_clean = time.monotonic() + _CLEAN_SECONDS
                self._sink.clean()
        except (Unavailable, OSError, *AWAY) as error:
            logger.warning("%s: %s", self.pipeline.name, error)

    def _patiently(self, do: Callable[[], T]) -> T | None:
        return patiently(do, self.pipeline.name, self._observers, self._stopping)

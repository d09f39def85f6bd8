"""One batch of a pipeline: run the function over it, find what fails, and settle it with the rows that were staged."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from penstock.core import codec
from penstock.core.lease import Failure, LeaseRow, Settled, Settlement
from penstock.core.observe import LeaseEnded, Observers, Timing
from penstock.declare.pipeline import Pipeline
from penstock.engine.heartbeat import Heartbeat
from penstock.engine.outage import patiently
from penstock.errors import AWAY, InvalidPipeline, LeaseLost, PenstockError, StagedLost, StoreUnavailable
from penstock.log.lease import Lease
from penstock.log.log import Log
from penstock.log.pipelines import PipelineStore
from penstock.log.refused import refusal
from penstock.spark.causes import first_line
from penstock.spark.pipelines.bisect import SIDE_BY_SIDE, Isolation, Result, SparkJob, Worked
from penstock.spark.pipelines.failures import check_result, failures_of
from penstock.spark.pipelines.frames import COLUMNS, UNREAD, Use, empty_frame, frame, use_of
from penstock.spark.pipelines.pace import Pace
from penstock.spark.pipelines.sinks.base import RefusingSink, SinkWriter, Written
from penstock.spark.pipelines.sinks.foreach import ForeachWriter
from penstock.spark.pipelines.sinks.totals import warn_of_lost_totals
from penstock.spark.pipelines.spark_jobs import Cause, SparkJobFailed, SparkJobs, Watch

T = TypeVar("T")
logger = logging.getLogger("penstock")
_PARTITION = 100_000  # most events per task: another task costs as much as 20,000 events
_TRIES = 3  # of a Spark job that lost executors


class Batches:
    """Runs and settles the batches of one pipeline, each in the thread that calls `work`."""

    def __init__(
        self,
        log: Log,
        spark: Any,
        safe_url: str,
        pipeline: Pipeline,
        sink: SinkWriter,
        heartbeat: Heartbeat,
        observers: Observers,
        stopping: threading.Event,
    ) -> None:
        self._log = log
        self._spark = spark
        self._url = safe_url
        self._pipeline = pipeline
        self._sink = sink
        self._heartbeat = heartbeat
        self._observers = observers
        self._stopping = stopping
        self.in_flight = 1  # batches side by side: known once the columns of the result are
        self.pace = Pace(pipeline.batch_size)
        self.spark_jobs = SparkJobs(spark, pipeline.name, pipeline.timeout_seconds)
        self._names: list[str] = []  # of the result's columns
        self._use = Use()  # of the events

    def check(self) -> None:
        """Call the function once with an empty batch, and check that the sink takes its result."""
        name = getattr(self._pipeline.function, "__qualname__", repr(self._pipeline.function))
        try:
            result = self._pipeline.function(empty_frame(self._spark))
            schema = check_result(result, name)
        except PenstockError:
            raise
        except Exception as error:
            raise InvalidPipeline(f"{name} fails with an empty batch: {first_line(error)}") from error
        self.in_flight = self._pipeline.batches_in_flight(self._sink.check(schema))
        warn_of_lost_totals(self._pipeline, result)
        self._names = schema.names
        self._use = use_of(self._spark, self._pipeline.function)

    def work(self, lease: Lease) -> bool:
        """Run and settle a batch; returns whether something was staged."""
        if self._stopping.is_set():
            self.release(lease)
            return False
        began, began_at = time.monotonic(), time.time()
        try:
            isolation = self._isolation(lease.row, self._spark_job)
            worked = isolation.run(self._partitions(lease.row))
        except BaseException as error:  # Spark has stopped, or a bug of ours: blame no event
            self.release(lease)
            if not isinstance(error, AWAY):
                raise
            return False
        if isolation.spark_jobs > 1:
            self._tell(isolation, worked)
        if worked.nothing_done and worked.away is None:
            self.release(lease)
        else:
            self._settle(lease, worked, Timing(began_at, 0.0, time.monotonic() - began))
        if worked.away is not None:
            self._warn(worked.away)
        elif worked.released and not self._stopping.is_set():
            self.pace.shrink(lease.row.members)  # too many culprits for `PIPELINE_JOBS`
        return bool(worked.aside)

    def release(self, lease: Lease) -> None:
        """Give a batch back."""
        self._heartbeat.drop(lease)
        released = self._patiently(lease.release)
        if released is not None:
            self._observers.emit(LeaseEnded(self._pipeline.name, lease.id, released))

    # --- Spark ---------------------------------------------------------------------------------------------------

    def _isolation(self, row: LeaseRow, spark_job: SparkJob) -> Isolation:
        # The user's function need not be thread-safe.
        width = 1 if isinstance(self._sink, ForeachWriter) else SIDE_BY_SIDE
        return Isolation(row, spark_job, self._members, self._stopping.is_set, width)

    def _partitions(self, row: LeaseRow) -> int:
        slots = max(1, int(self._spark.sparkContext.defaultParallelism))
        return max(1, min(max(slots, -(-row.members // _PARTITION)), -(-row.members // 100)))

    def _members(self, row: LeaseRow) -> list[int]:
        found = self._patiently(lambda: PipelineStore(self._log.store).offsets(row))
        if found is None:
            raise StoreUnavailable(f"Lease {row.id} was given up: the pipeline stopped during a database outage.")
        return found

    def _spark_job(self, piece: LeaseRow, pieces: Sequence[LeaseRow], tolerated: int) -> Result:
        """Run the function over a piece of a batch; again if executors were lost or a column was not read."""
        for tries_left in reversed(range(_TRIES)):
            try:
                return self.spark_jobs.run(
                    lambda watch: self._write(watch, piece, pieces), pieces=len(pieces), tolerated=tolerated
                )
            except SparkJobFailed as error:
                if UNREAD in error.failure.message and self._use.columns != COLUMNS:
                    logger.warning("%s: %s; reading all columns from now on", self._pipeline.name, error)
                    self._use = self._use._replace(columns=COLUMNS)
                elif not error.lost or not tries_left or self._stopping.is_set():
                    raise
                else:
                    logger.warning("%s: %s; running it again", self._pipeline.name, error)
        raise AssertionError("unreachable")

    def _write(self, watch: Watch, piece: LeaseRow, pieces: Sequence[LeaseRow]) -> Result:
        result = self._pipeline.function(frame(self._spark, self._url, pieces, self._use.columns))
        names = check_result(result, self._pipeline.name).names
        if names != self._names:
            raise InvalidPipeline(f"The result has the columns {names}, and had {self._names} at the start.")
        written: Written = self._sink.write(result, piece)
        skipped: dict[int, Cause | None] = {}
        if written.skipped:
            causes = watch.causes()
            skipped = {place: causes.get(place) for place in written.skipped}
            for cause in causes.values():
                if UNREAD in cause.failure.message:
                    raise SparkJobFailed(cause.failure)
        return Result(written.aside, failures_of(written.failed, piece), skipped, written.skipped is not None)

    def _tell(self, isolation: Isolation, worked: Worked) -> None:
        first = next(iter(worked.failed.values()), None)
        logger.info(
            "%s: %d Spark jobs to find %d failing events%s",
            *(self._pipeline.name, isolation.spark_jobs, len(worked.failed)),
            "" if first is None else f": {first.message.partition(chr(10))[0][:200]}",
        )

    # --- settle --------------------------------------------------------------------------------------------------

    def _settle(self, lease: Lease, worked: Worked, timing: Timing) -> None:
        began = time.monotonic()
        settled = self._patiently(lambda: self._report(lease, worked))
        self._heartbeat.drop(lease)
        if settled is None:
            return
        timing = replace(timing, settle_seconds=time.monotonic() - began)
        self._observers.emit(LeaseEnded(self._pipeline.name, lease.id, settled, timing=timing))
        if settled.published:
            self.pace.grow()

    def _report(self, lease: Lease, worked: Worked) -> Settled:
        """Settle; if the database refuses rows, fail their events, or claim less until the culprit is alone.

        Safe to repeat: what was found out stays in `worked`.
        """
        row = lease.row
        for find in (self._ask_database, self._ask_spark, None):
            try:
                return self._move(row, worked)
            except (LeaseLost, *AWAY):
                raise
            except StagedLost as error:  # the server crashed, and with it what was staged: nobody is to blame
                logger.warning("%s: %s The batch is done again.", self._pipeline.name, error.message)
                return lease.release()
            except Exception as error:
                logger.warning("%s: the settle failed: %s", self._pipeline.name, first_line(error))
                unusable = self._unusable()
                if unusable is not None:  # the table has changed: no event is to blame
                    self._warn(unusable)
                    nothing = Settlement(released=frozenset(row.offsets or ()), upto=row.low, unavailable=unusable)
                    return self._log.settle(row.id, row.token, nothing)
                if row.members == 1:
                    return self._log.settle(row.id, row.token, self._only_failed(row, error))
                if find is not None and not self._stopping.is_set():
                    with suppress(StagedLost):  # the next try says so
                        find(row, worked, error)
        self.pace.shrink(row.members)
        return lease.release()

    def _move(self, row: LeaseRow, worked: Worked) -> Settled:
        if worked.released and not worked.members:
            worked.members = self._members(row)
        upto, released = worked.back(row)
        said = Settlement(
            failed=worked.failed,
            released=released,
            upto=upto,
            moves=[one.name for one in worked.aside],
            unavailable=worked.away,
        )
        without = worked.failed.keys() | worked.released
        return self._log.settle(row.id, row.token, said, move=self._sink.move(row, worked.aside, without))

    def _only_failed(self, row: LeaseRow, error: Exception) -> Settlement:
        text = error.message if isinstance(error, PenstockError) else codec.error_text(error)
        failure = Failure(codec.error_code(error), codec.error_text(f"settle_failed: {text}"))
        (only,) = self._members(row)
        return Settlement(failed={only: failure}, upto=row.high)

    def _ask_database(self, row: LeaseRow, worked: Worked, error: Exception) -> None:
        """Find the refused rows among those that are staged: no further Spark job.

        Only if a row is made of one event. Failing the event that the row of a total names would lose all others.
        """
        if not isinstance(self._sink, RefusingSink) or not self._use.apart:
            return
        found = self._sink.refused(worked.aside, worked.failed.keys() | worked.released)
        if found is not None:
            worked.failed |= found.failed
            worked.released |= found.untried

    def _ask_spark(self, row: LeaseRow, worked: Worked, error: Exception) -> None:
        """Search by Spark jobs over pieces, whose rows are tried in the database."""
        sink = self._sink
        if not isinstance(sink, RefusingSink):
            return

        def spark_job(piece: LeaseRow, pieces: Sequence[LeaseRow], tolerated: int) -> Result:
            return _tried(sink, self._spark_job(piece, pieces, tolerated))

        known = SparkJobFailed(refusal(first_line(error)))
        isolation = self._isolation(row, spark_job)
        found = isolation.run(self._partitions(row), known)
        self._tell(isolation, found)
        worked.aside, worked.failed, worked.released = found.aside, found.failed, found.released
        worked.members, worked.away = found.members, found.away

    def _unusable(self) -> Failure | None:
        """Check the sink again; return why it refuses all rows, if it does."""
        try:
            self._sink.check(self._pipeline.function(empty_frame(self._spark)).schema)
        except Exception as error:
            return Failure(codec.error_code(error), codec.error_text(error))
        return None

    # --- around it -----------------------------------------------------------------------------------------------

    def _warn(self, why: Failure) -> None:
        logger.warning(
            "%s: no progress possible (%s); retrying with one event at a time", self._pipeline.name, why.message
        )

    def _patiently(self, do: Callable[[], T]) -> T | None:
        return patiently(do, self._pipeline.name, self._observers, self._stopping)


def _tried(sink: RefusingSink, result: Result) -> Result:
    """Try what a Spark job staged, piece by piece where that is known; `SparkJobFailed` where it is not."""
    if not result.once:
        refused = sink.try_out(result.aside) if result.aside else None
        if refused is not None:
            raise SparkJobFailed(refusal(refused))
        return result
    kept = []
    for one in result.aside:
        refused = sink.try_out([one])
        if refused is None or one.partition is None:
            kept.append(one)
        else:
            result.skipped[one.partition] = Cause(refusal(refused))
    result.aside = kept
    return result

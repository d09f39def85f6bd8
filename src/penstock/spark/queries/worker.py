"""The supervisor of one streaming query: checks it, starts it, restarts it after a failure, and stops it gracefully.

Spark runs the query; the claims are the source's (see `spark.source.stream`), the rows the writer's. What a restart
needs is in the checkpoint and in the log.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from contextlib import suppress
from typing import Any

from penstock.declare.query import Query, declare_query
from penstock.errors import (
    AWAY,
    InvalidPipeline,
    InvalidQuery,
    OrderedGroup,
    PenstockError,
    SparkLost,
    StaleBatch,
    UnknownGroup,
    UnknownReader,
    all_errors,
)
from penstock.log import queries
from penstock.log.log import Log
from penstock.spark import register, secrets
from penstock.spark.causes import failure_of, first_line
from penstock.spark.pipelines.failures import check_result
from penstock.spark.plans import kind, used_columns
from penstock.spark.queries.checkpoint import Checkpoint
from penstock.spark.queries.progress import QueryCounters
from penstock.spark.queries.writer import QueryWriter
from penstock.spark.session import check_classic, check_master, has_ended
from penstock.spark.source.shapes import types_of

logger = logging.getLogger("penstock")
_RESTART_SECONDS = (1.0, 60.0)  # before a failed query is started again: first and longest; it doubles
_GRACE_SECONDS = 20.0  # for the running micro-batch to finish after a stop
_LOOK_SECONDS = 0.2  # between two looks at a running query
_FOR_EVER = (UnknownReader, UnknownGroup, OrderedGroup, StaleBatch)  # a restart does not help
_COLUMNS = tuple(types_of("events"))
_OF_A_RUN = re.compile(r"^STREAM_FAILED: Query .*? terminated with exception: ", re.DOTALL)  # ids that always differ


class QueryWorker:
    """The worker of one query. One thread calls `run`; any thread may call `stop`."""

    def __init__(
        self, log: Log, spark: Any, url: str, query: Query, *, run: int | None = None, until_drained: bool = False
    ) -> None:
        self.log = log
        self.served = query
        self.counters = QueryCounters(log, query.name, run)
        self.busy = False  # a micro-batch is being written
        self._spark = check_classic(spark)
        self._url = secrets.hide(spark, log.store.url or url)
        self._run_id = run
        self._columns: list[str] | None = None  # that the function uses; None: all
        self._until_drained = until_drained
        self._writer = QueryWriter(log, self._url, query)
        self._checkpoint = Checkpoint(spark, query.place)
        self._running: Any = None  # Spark's query, while there is one
        self._begun = 0  # micro-batches
        self._idle_at = -1  # value of `_begun` when the query last had nothing left to do
        self._said: str | None = None  # the cause of the last failure
        self._stopping = threading.Event()
        self._ended = threading.Event()

    @property
    def caught_up(self) -> bool:
        """Whether the query had nothing left to do when last asked, not even an empty batch that ends windows."""
        return self._idle_at == self._begun

    # --- start ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Declare the group, and check function, sink, output mode and checkpoint before anything is claimed."""
        query = self.served
        check_master(self._spark.sparkContext.master, self.log.store.url)
        for group in self.log.groups(query.stream):
            if group.group_name == query.group and group.ordered:
                raise OrderedGroup(f"The group {query.name} is ordered by key; a streaming query does not keep order.")
        register(self._spark)
        result = self._result()
        self._check_mode(result)
        self._writer.check(result.schema)
        self._checkpoint.check()
        self._read_less(result)
        declare_query(self.log, query, f"query:{query.app}")
        self._tell_history()
        self.counters.start()

    def _result(self) -> Any:
        """Call the function with the streaming DataFrame of the group, with the columns that it is known to use."""
        query, function = self.served, self.served.function
        name = getattr(function, "__qualname__", repr(function))
        options = {"url": self._url, "stream": query.stream, "group": query.group, "maxRowsPerTrigger": query.max_rows}
        if self._run_id is not None:
            options["run"] = self._run_id
        if self._columns is not None:
            options["columns"] = ",".join(self._columns)
        try:
            events = self._spark.readStream.format("penstock").options(**options).load()
            result = function(events)
            check_result(result, name)
        except InvalidPipeline as error:
            raise InvalidQuery(error.message) from error
        except PenstockError:
            raise
        except Exception as error:
            raise InvalidQuery(f"{name} fails with a streaming DataFrame: {first_line(error)}.") from error
        if not result.isStreaming:
            raise InvalidQuery(f"{name} returned a DataFrame that is not streaming: build it from the one it gets.")
        return result

    def _read_less(self, result: Any) -> None:
        """Read only the columns that the function uses, according to Spark's plan, if it gives the same with them."""
        try:
            optimizer = self._spark._jsparkSession.sessionState().optimizer()
            plan = optimizer.execute(result._jdf.queryExecution().analyzed())
            used = used_columns(plan, lambda one: kind(one) == "StreamingRelationV2")
            self._columns = [name for name in _COLUMNS if name in used] or ["offset"]
            same = self._result().schema == result.schema
        except Exception as error:  # it names columns without using them, or the Spark version differs
            logger.debug("%s: reading all columns: %s", self.served.name, error)
            same = False
        if not same:
            self._columns = None

    def _check_mode(self, result: Any) -> None:
        """Let Spark check that the plan can run in this output mode; it would do so only after the start."""
        jvm, mode = self._spark._jvm, self.served.output_mode
        check = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming
        modes = jvm.org.apache.spark.sql.streaming.OutputMode
        try:
            check(result._jdf.queryExecution().analyzed(), getattr(modes, mode.capitalize())())
        except Exception as error:
            raise InvalidQuery(f"Spark refuses the output mode {mode!r}: {first_line(error)}.") from error

    def _tell_history(self) -> None:
        """Warn if others have read this group: what they have settled does not come again, and state begins empty."""
        query, own = self.served, self._checkpoint.reader()
        others = [one for one in queries.readers(self.log.store, query.stream, query.group) if one != own]
        if others and own is None:
            logger.warning(
                "%s: the checkpoint %s is new, but reader %s has read this group: what it settled does not come again, "
                "and windows and state begin empty. To compute them again: penstock group rewind %s %s --to beginning",
                *(query.name, self._checkpoint.place, others[0], query.stream, query.group),
            )
        for one in self.log.readers(query.stream, query.group):
            if one.reader != own:
                logger.warning(
                    "%s: reader %s, which is not this query, holds %s events since %s. If it does not come back: "
                    "penstock release %s %s --reader %s",
                    *(query.name, one.reader, f"{one.events:,}", f"{one.claimed_at:%Y-%m-%d %H:%M}"),
                    *(query.stream, query.group, one.reader),
                )

    # --- run -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Keep the query running until stopped; raise if it cannot ever work."""
        first, most = _RESTART_SECONDS
        pause = first
        if self._until_drained:
            threading.Thread(target=self._look_idle, name="penstock-idle", daemon=True).start()
        try:
            while not self._stopping.is_set():
                begun = self._begun
                error = self._attempt()
                if error is None:
                    return
                if not self._stopping.is_set():
                    self._tell_failure(error)
                pause = first if self._begun > begun + 1 else pause  # a batch has succeeded in between
                self._stopping.wait(pause)
                pause = min(2 * pause, most)
        finally:
            self._ended.set()
            self.counters.read()

    def _attempt(self) -> Exception | None:
        """Run the query until it is stopped (None) or fails."""
        try:
            self._running = query = self._start()
            try:
                while not query.awaitTermination(_LOOK_SECONDS):
                    self.counters.read_now_and_then()
                    if self._stopping.is_set():
                        self._finish(query)
                        return None
            finally:
                self._running = None
                with suppress(Exception):  # Spark has ended
                    query.stop()
        except Exception as error:
            if has_ended(self._spark.sparkContext):
                raise SparkLost(f"Spark has stopped: {first_line(error)}.") from error
            return error
        return None if self._stopping.is_set() else SparkLost(f"The query {self.served.name} was stopped by somebody.")

    def _start(self) -> Any:
        query = self.served
        writer = (
            self._result()
            .writeStream.queryName(query.name)
            .outputMode(query.output_mode)
            .foreachBatch(self._write)
            .option("checkpointLocation", self._checkpoint.place)
            .trigger(processingTime=f"{query.trigger_seconds} seconds")
        )
        with self._checkpoint.written_directly():
            return writer.start()

    def _write(self, rows: Any, number: int) -> None:
        self._begun += 1
        self.busy = True
        try:
            self._writer.write(rows, number)
        finally:
            self.busy = False
        self._said = None

    def _tell_failure(self, error: Exception) -> None:
        """Log a failure once per cause; raise if a restart does not help."""
        failure = failure_of(error)
        code = all_errors().get(failure.code)
        if isinstance(error, _FOR_EVER):
            raise error
        if code is not None and issubclass(code, _FOR_EVER):  # from another process: its text begins with the code
            raise code(failure.message.partition(f"[{code.code}] ")[2].removesuffix(code.hint).strip()) from error
        cause = _OF_A_RUN.sub("", failure.message)
        if cause != self._said:
            self._said = cause
            logger.warning("%s: the query failed and is started again: %s", self.served.name, cause)

    # --- stop ----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop after the running micro-batch, if that ends in `_GRACE_SECONDS`. Returns at once."""
        self._stopping.set()

    def _finish(self, query: Any) -> None:
        """Let the running micro-batch end and be settled. The source, which reads the run's row, claims nothing new."""
        if self._run_id is not None:
            try:
                self.log.order_run(self._run_id, "stop")
            except AWAY as error:
                logger.warning("%s: stopped without a settle: %s", self.served.name, error)
                return
        settled = threading.Event()

        def wait() -> None:
            with suppress(Exception):  # the query failed: it is settled when it starts again
                query.processAllAvailable()
            settled.set()

        if self._run_id is not None:
            threading.Thread(target=wait, name="penstock-finish", daemon=True).start()
        deadline = time.monotonic() + _GRACE_SECONDS
        while time.monotonic() < deadline and (self.busy or (self._run_id is not None and not settled.is_set())):
            settled.wait(_LOOK_SECONDS)

    def _look_idle(self) -> None:
        """Ask Spark again and again whether the query has anything left to do."""
        while not self._ended.is_set():
            query, begun = self._running, self._begun
            if query is None:
                self._ended.wait(_LOOK_SECONDS)
                continue
            try:
                query.processAllAvailable()  # returns when a trigger has found nothing
            except Exception:  # it failed or was stopped: `run` sees it
                self._ended.wait(_LOOK_SECONDS)
            else:
                self._idle_at = begun
                self._ended.wait(_LOOK_SECONDS)

"""Run a pipeline's worker in this process, on the tests' own Spark session."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import penstock
from penstock.declare.pipeline import Pipeline
from penstock.engine.drain import Drained
from penstock.engine.heartbeat import Heartbeat
from penstock.spark.pipelines.worker import PipelineWorker
from tests.support.raw_sql import raw

PATIENCE_SECONDS = 240


@contextmanager
def running_pipeline(
    log: penstock.Log, spark: Any, pipeline: Pipeline, *, claimed_by: str = "w"
) -> Iterator[PipelineWorker]:
    """Run the pipeline in a thread; an error that ended it is raised on exit."""
    heartbeat = Heartbeat()
    heartbeat.start()
    worker = PipelineWorker(log, spark, log.store.url, pipeline, claimed_by, heartbeat)
    worker.start()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            worker.run()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join(PATIENCE_SECONDS)
        heartbeat.stop()
        assert not thread.is_alive()
        if failed:
            raise failed[0]


def run_pipeline_until_drained(log: penstock.Log, spark: Any, pipeline: Pipeline) -> dict[str, int]:
    """Run until no work is left; return the worker's counters."""
    left = Drained(log, [pipeline])
    ended = threading.Event()
    with running_pipeline(log, spark, pipeline) as worker:
        for _ in range(PATIENCE_SECONDS * 10):
            if left.look() or ended.wait(0.1):
                break
        else:
            raise AssertionError(f"still working: {worker.counters.snapshot()}")
    return worker.counters.snapshot()


def select_offset_and_n(batch: Any) -> Any:
    """A pipeline's function: the offset and the payload's n."""
    from pyspark.sql import functions as f

    return batch.select("offset", f.get_json_object(f.col("payload").cast("string"), "$.n").cast("bigint").alias("n"))


def create_numbers_table(url: str, columns: str = 'n bigint, "offset" bigint') -> None:
    with raw(url) as sql:
        sql(f"create table numbers ({columns})")


def stored_numbers(url: str) -> list[int]:
    """Every n in the table `numbers`, sorted."""
    with raw(url) as sql:
        return sorted(n for (n,) in sql("select n from numbers"))


def staged_leftovers(url: str) -> list[int]:
    """The sizes of the tables that are empty when nothing is staged."""
    tables = ("staging_attempts", "staged", "staged_rows", "renames")
    with raw(url) as sql:
        return [sql(f"select count(*) from penstock.{table}")[0][0] for table in tables]

"""A driver that kills itself with SIGKILL at a named step of a pipeline's commit.

`python -m tests.support.children.killed_driver URL KIND PLACE WHEN BLOCK`: a step is a statement of the driver's log,
before or after it ran, from the first claim on. The block `settled` is the commit of a settle, `claimed` that of a
claim. The block `running` is the middle of a Spark job: one of its tasks kills the driver.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import penstock
from penstock import sinks
from penstock.declare.pipeline import Pipeline, Sink
from tests.support.declarations import pipeline
from tests.support.spark_pipeline import run_pipeline_until_drained
from tests.support.viewfs import mount_viewfs, viewfs_url

EVENTS = 300
STEPS = {
    "table": [
        *[("after", "claimed"), ("in", "running"), ("before", "stage.hold"), ("after", "user_sql")],
        *[("before", "settled"), ("after", "settled")],
    ],
    "upsert": [("before", "settled"), ("after", "settled")],
    "stream": [("in", "running"), ("after", "stage.append"), ("before", "settled"), ("after", "settled")],
    "parquet": [
        *[("in", "running"), ("before", "rename.note"), ("before", "settled"), ("after", "settled")],
        *[("before", "rename.forget"), ("after", "rename.forget")],
    ],
}
STEPS["hadoop"] = STEPS["parquet"]


class Kill:
    """A hook that kills its own process."""

    def __init__(self, when: str, block: str) -> None:
        self.when, self.block = when, block
        self.last: str | None = None  # what the next commit commits

    def __call__(self, when: str, block: str) -> None:
        if block in ("lease.open", "lease.end"):
            self.last = {"lease.open": "claimed", "lease.end": "settled"}[block]
        name = self.last if block == "commit" else block
        if self.last is not None and (when, name) == (self.when, self.block):
            os.kill(os.getpid(), signal.SIGKILL)
        if block == "commit" and when == "after" and self.last == "settled":
            self.last = "between"


def sink_of(kind: str, place: str) -> Sink:
    if kind == "table":
        return sinks.Table("numbers")
    if kind == "upsert":
        return sinks.Table("numbers", mode="upsert", keys=["n"])
    if kind == "hadoop":
        return sinks.Parquet(viewfs_url(place))
    return sinks.Stream("copies", type="copy", key="n") if kind == "stream" else sinks.Parquet(place)


def function_of(driver: int | None) -> Callable[[Any], Any]:
    """A pipeline's function; one of its tasks kills the driver, if one is given."""

    def numbers(batch: Any) -> Any:
        from pyspark.sql import functions as f

        @f.udf("bigint")
        def deadly(n):  # no type hints: Spark would use them
            if driver is not None and n == EVENTS - 1:
                os.kill(driver, signal.SIGKILL)
            return n

        text = f.col("payload").cast("string")
        return batch.select(deadly(f.get_json_object(text, "$.n").cast("bigint")).alias("n"))

    return numbers


def declared(kind: str, place: str, driver: int | None = None) -> Pipeline:
    return pipeline(function_of(driver), sink_of(kind, place), lease_seconds=6, batch_size=200)


def main() -> None:
    from penstock.spark.session import make_session

    url, kind, place, when, block = sys.argv[1:]
    spark = make_session("local[2]", config={"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"})
    mount_viewfs(spark, place)
    running = block == "running"
    with penstock.open(url, hook=None if running else Kill(when, block)) as log:
        run_pipeline_until_drained(log, spark, declared(kind, place, os.getpid() if running else None))
    spark.stop()


if __name__ == "__main__":
    main()

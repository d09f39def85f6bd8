"""Run handlers and jobs as tasks of Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import penstock
from penstock.declare.job import JobType, ScheduledJob
from penstock.declare.subscription import Subscription
from penstock.engine.run_row import begin
from penstock.spark.handlers.engine import SparkEngine

PATIENCE_SECONDS = 100


def run_on_spark_until_drained(spark: Any, log: penstock.Log, *subscriptions: Subscription) -> SparkEngine:
    """Run an engine until no work is left; return it for its counters."""
    with engine_on_spark(spark, log, *subscriptions, until_drained=True) as engine:
        assert engine.wait(PATIENCE_SECONDS), f"still working: {engine.snapshot()}"
    return engine


@contextmanager
def engine_on_spark(
    spark: Any,
    log: penstock.Log,
    *subscriptions: Subscription,
    jobs: Sequence[JobType] = (),
    schedules: Sequence[ScheduledJob] = (),
    until_drained: bool = False,
) -> Iterator[SparkEngine]:
    """A started engine; on exit it is stopped and has ended."""
    run = begin(log, "spark", [one.name for one in (*subscriptions, *jobs)])
    declared = (subscriptions, (), (), jobs, schedules)
    engine = SparkEngine(log, spark, log.store.url, *declared, until_drained=until_drained, run=run)
    engine.start()
    try:
        yield engine
    finally:
        engine.stop()
        assert engine.wait(PATIENCE_SECONDS), f"does not stop: {engine.snapshot()}"

"""How the tests run an engine on Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import penstock
from penstock.declare.subscription import Subscription
from penstock.spark.handlers.engine import SparkEngine

PATIENCE = 100


def drain(spark: Any, log: penstock.Log, *subscriptions: Subscription) -> SparkEngine:
    """Run until nothing is left."""
    with running(spark, log, *subscriptions, until_drained=True) as engine:
        assert engine.wait(PATIENCE), f"still at work: {engine.snapshot()}"
    return engine


@contextmanager
def running(
    spark: Any, log: penstock.Log, *subscriptions: Subscription, until_drained: bool = False
) -> Iterator[SparkEngine]:
    """An engine at work; it is stopped at the end, and has ended then."""
    engine = SparkEngine(log, spark, log.store.url, subscriptions, until_drained=until_drained)
    engine.start()
    try:
        yield engine
    finally:
        engine.stop()
        assert engine.wait(PATIENCE), f"does not stop: {engine.snapshot()}"

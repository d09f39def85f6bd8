"""Run an app on Spark in the foreground: find or make a session, and stop it if we made it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from penstock.declare.pipeline import Pipeline
from penstock.declare.portable import portable
from penstock.declare.subscription import Subscription
from penstock.engine.foreground import Orders, run_engine
from penstock.engine.outcome import Outcome
from penstock.engine.run_row import running
from penstock.log.log import Log
from penstock.spark.handlers.engine import SparkEngine
from penstock.spark.session import active_session, check_classic, check_master, complete, make_session


def run_spark(
    log: Log,
    subscriptions: Sequence[Subscription],
    pipelines: Sequence[Pipeline] = (),
    *,
    name: str,
    master: str | None = None,
    spark: Any = None,
    until_drained: bool = False,
) -> Outcome:
    """Run until a signal or an operator stops it, or until drained. Handlers are checked before Spark starts."""
    for one in subscriptions:
        portable(one)
    with session_for(spark, master, name, log.store.url) as session:
        orders = Orders()
        groups = [*(one.name for one in subscriptions), *(one.name for one in pipelines)]
        with running(log, "spark", groups, name, orders.obey):
            engine = SparkEngine(log, session, log.store.url, subscriptions, pipelines, until_drained=until_drained)
            return run_engine(engine, orders)


@contextmanager
def session_for(spark: Any, master: str | None, name: str, url: str) -> Iterator[Any]:
    """Yield the given session; else the active one, if no master is named; else a new one, stopped at the end."""
    if spark is None and master is None:
        spark = active_session()
    if spark is not None:
        check_classic(spark)
        check_master(spark.sparkContext.master, url)
        yield spark
        return
    check_master(complete(master), url)
    made = make_session(master, name=name)
    try:
        yield made
    finally:
        made.stop()

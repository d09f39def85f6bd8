"""The workers of an engine that run as Spark jobs of their own: pipelines and streaming queries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from penstock.declare.pipeline import Pipeline
from penstock.declare.query import Query
from penstock.engine.drain import Served
from penstock.engine.heartbeat import Heartbeat
from penstock.log.log import Log


class HasCounts(Protocol):
    """Counters of one group."""

    def snapshot(self) -> dict[str, int]: ...


class Worker(Protocol):
    """A worker of one group. One thread calls `run`; any thread may call `stop`."""

    @property
    def busy(self) -> bool:
        """Whether a Spark job of it runs."""

    @property
    def served(self) -> Served: ...
    @property
    def counters(self) -> HasCounts: ...
    @property
    def caught_up(self) -> bool:
        """Whether it may be drained; the log has the last word."""

    def start(self) -> None:
        """Check everything before anything is claimed."""

    def run(self) -> None:
        """Work until stopped."""

    def stop(self) -> None:
        """Stop gracefully. Returns at once."""


def make_workers(
    log: Log,
    spark: Any,
    url: str,
    pipelines: Sequence[Pipeline],
    queries: Sequence[Query],
    *,
    name: Callable[[str], str],
    heartbeat: Heartbeat,
    run: int | None,
    until_drained: bool,
) -> list[Worker]:
    """Make the workers, each with its own imports: an app with handlers alone needs neither."""
    made: list[Worker] = []
    if pipelines:
        from penstock.spark.pipelines.worker import PipelineWorker

        made += [PipelineWorker(log, spark, url, one, name(one.group), heartbeat, run) for one in pipelines]
    if queries:
        from penstock.spark.queries.worker import QueryWorker

        made += [QueryWorker(log, spark, url, one, run=run, until_drained=until_drained) for one in queries]
    return made

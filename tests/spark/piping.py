"""How the tests run a pipeline: with the worker itself, in this process, on the run's own Spark session."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import penstock
from penstock.declare.pipeline import Pipeline, Sink
from penstock.engine.drain import Drained
from penstock.engine.heartbeat import Heartbeat
from penstock.spark.pipelines.worker import PipelineWorker

AT_ONCE = penstock.Retry(max_attempts=2, base_seconds=0, jitter=0)
PATIENCE = 240


def pipeline(function: Any, sink: Sink, *, stream: str = "orders", group: str = "g", **options: Any) -> Pipeline:
    return Pipeline(stream, group, function, sink, **{"retry": AT_ONCE, **options})


@contextmanager
def working(log: penstock.Log, spark: Any, one: Pipeline, *, claimed_by: str = "w") -> Iterator[PipelineWorker]:
    """The pipeline at work in a thread; what ended it by itself is raised at the end."""
    watch = Heartbeat()
    watch.start()
    worker = PipelineWorker(log, spark, log.store.url, one, claimed_by, watch)
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
        thread.join(PATIENCE)
        watch.stop()
        assert not thread.is_alive()
        if failed:
            raise failed[0]


def drain(log: penstock.Log, spark: Any, one: Pipeline) -> dict[str, int]:
    """Run until nothing is left; returns what was counted."""
    left = Drained(log, [one])
    ended = threading.Event()
    with working(log, spark, one) as worker:
        for _ in range(PATIENCE * 10):
            if left.look() or ended.wait(0.1):
                break
        else:
            raise AssertionError(f"still at work: {worker.counters.snapshot()}")
    return worker.counters.snapshot()


def states(log: penstock.Log, stream: str = "orders", group: str = "g") -> dict[str, int]:
    """How many deliveries are in which state."""
    (found,) = [one for one in log.stats().groups if (one.stream, one.group) == (stream, group)]
    counts = {name: getattr(found, name) for name in ("pending", "claimed", "published", "dead")}
    return {name: count for name, count in counts.items() if count}


def fill(log: penstock.Log, count: int, stream: str = "orders") -> None:
    """Events with n = 0, 1, 2, …"""
    log.append_many(stream, [{"payload": {"n": n}, "type": f"order.{n % 2}"} for n in range(count)])

"""Middleware, hooks, retry by class and cancel inside Spark tasks: the same as on the local engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.declare.around import Around, hook_of, middleware_of
from tests.support.children import around, cancelled
from tests.support.declarations import subscription
from tests.support.job_engine import job_type
from tests.support.notes import read_notes
from tests.support.spark_engine import engine_on_spark
from tests.support.waiting import wait_until


def everything() -> Around:
    return Around([middleware_of(around.outer)], [hook_of(around.start)], [hook_of(around.stop)])


def states(log: penstock.Log) -> list[str]:
    return [str(one.state) for one in log.deliveries("orders", "g")]


@pytest.mark.shows("S01", "K14")
def test_middleware_hooks_and_classes_of_exceptions(spark: Any, log: penstock.Log, notes: Path) -> None:
    log.append_many("orders", [{"payload": {"do": do}, "type": "t"} for do in (None, "raise", None)])
    log.submit("a", {})
    one = subscription(around.handle, retry=penstock.Retry(max_attempts=3, base_seconds=0, dead_for=(ValueError,)))
    one.around = everything()
    job = replace(job_type(around.job), around=everything())
    with engine_on_spark(spark, log, one, jobs=[job], until_drained=True) as engine:
        assert engine.wait(100)
    shown = log.deliveries("orders", "g")
    assert [(str(row.state), row.failures) for row in shown] == [("PUBLISHED", 0), ("DEAD", 1), ("PUBLISHED", 0)]
    assert log.jobs()[0].result == 7
    said = [line[0] for line in read_notes(notes)]
    assert said.count("outer") == 4 and said.count("returned") == 3 and said.count("raised") == 1
    assert said.count("start") >= 2 and said.index("start") < said.index("outer")


@pytest.mark.shows("S01")
def test_a_running_event_is_cancelled(spark: Any, log: penstock.Log, notes: Path) -> None:
    ids = [
        log.append(
            "orders", {"wait": n == 1, "end": "raise" if n == 1 else None}, type="t", ordering_key="ada"
        ).event_id
        for n in range(3)
    ]
    policy = {"lease_seconds": 3, "timeout_seconds": 600, "retry": penstock.Retry(max_attempts=1)}
    with engine_on_spark(spark, log, subscription(cancelled.patient, **policy)):
        wait_until(lambda: len(read_notes(notes)) >= 2)
        assert log.cancel("orders", "g", event_ids=[ids[1]], by="ada").running == 1
        wait_until(
            lambda: [str(one.state) for one in log.deliveries("orders", "g")] == ["PUBLISHED", "DEAD", "PUBLISHED"]
        )
    assert log.delivery("orders", "g", ids[1]).reason == "cancelled"

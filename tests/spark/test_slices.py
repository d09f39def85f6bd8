"""The driver and its slices: no port between them, slots only for groups with work, and a limit on connections."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.engine.run_row import begin
from penstock.spark import logs
from penstock.spark.handlers import engine as engines
from penstock.spark.handlers import stop
from penstock.spark.handlers.engine import SparkEngine
from tests.support.children import batch_handlers, handlers
from tests.support.cutting_proxy import CuttingProxy
from tests.support.declarations import subscription
from tests.support.log_steps import count_published
from tests.support.notes import read_notes
from tests.support.postgres_server import PostgresServer
from tests.support.raw_sql import raw
from tests.support.sockets import connections, listening
from tests.support.spark_engine import PATIENCE_SECONDS, engine_on_spark
from tests.support.waiting import wait_until


def slices(log: penstock.Log) -> set[int]:
    """The Python workers that have claimed something; claimed_by is host/executor/pid/group."""
    with raw(log.store.url) as sql:
        return {int(str(one).split("/")[2]) for (one,) in sql("select distinct claimed_by from penstock.leases")}


def spark_works(spark: Any) -> bool:
    return bool(spark.sparkContext.statusTracker().getActiveJobsIds())


@pytest.mark.shows("S18", "S21")
def test_a_group_without_events_has_no_slot_until_an_append_wakes_it(
    spark: Any, postgres_log: penstock.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nobody listens on a port: neither the driver, beyond what Spark itself does, nor its slices."""
    log = postgres_log
    monkeypatch.setattr(engines, "_PATIENCE_LONG", 0.5)
    before = listening(os.getpid())
    with engine_on_spark(spark, log, subscription(handlers.plain)) as engine:
        (group,) = engine._groups
        log.append("orders", {}, type="t")
        wait_until(lambda: count_published(log) == 1)
        assert listening(os.getpid()) <= before
        assert not any(listening(pid) for pid in slices(log) if Path(f"/proc/{pid}").exists())
        wait_until(lambda: group.asleep is not None and not spark_works(spark), "the group to fall asleep")
        number = group.last
        other = log.append("others", {}, type="t").offset
        wait_until(lambda: group.asleep is not None and group.asleep.horizon >= other, "a look at the other stream")
        assert group.last == number and not spark_works(spark), "an append to another stream started a slice"
        log.append("orders", {}, type="t")
        wait_until(lambda: count_published(log) == 2)
        assert group.last > number


@pytest.mark.shows("S18")
def test_an_operator_stops_busy_slices_through_the_database(
    spark: Any, postgres_log: penstock.Log, notes: Path
) -> None:
    """Nobody tells the driver here, so only the slices can have read the order; they release what they hold."""
    log = postgres_log
    log.append_many("orders", [{"payload": {"seconds": 0.05}, "type": "t"}] * 400)
    with engine_on_spark(spark, log, subscription(handlers.slow, batch_seconds=60)):
        wait_until(lambda: len(read_notes(notes)) > 4)
        (run,) = log.runs()
        log.stop_run(run.id, by="ada")
        wait_until(lambda: not log.stats().groups[0].claimed and not spark_works(spark), "the slices to end")
        assert 0 < log.stats().groups[0].published < 400


@pytest.mark.shows("S26", "J20")
def test_a_python_worker_keeps_to_its_connections_with_many_groups(
    spark: Any, postgres_log: penstock.Log, postgres: PostgresServer, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One group has a batch handler, whose events have outcomes of their own."""
    log, most = postgres_log, 2
    acts = {5: "text", 50: "raise", 77: "exit"}
    log.append_many("orders", [{"payload": {"n": n, "do": acts.get(n)}, "type": "t"} for n in range(1, 101)])
    log.append_many("many", [{"payload": {}, "type": "t"}] * 8_000)
    groups = [
        subscription(batch_handlers.plain, batch=20),
        *(subscription(handlers.plain, stream="many", group=f"h{n}") for n in range(3)),
    ]
    seen: dict[int, int] = {}

    def drained(engine: SparkEngine) -> bool:
        for pid in slices(log):
            if Path(f"/proc/{pid}").exists():
                seen[pid] = max(seen.get(pid, 0), connections(pid, postgres.port))
        return engine.wait(0)

    with limit_of(spark, most), engine_on_spark(spark, log, *groups, until_drained=True) as engine:
        wait_until(lambda: drained(engine), seconds=PATIENCE_SECONDS)
    assert seen and max(seen.values()) <= most, seen
    dead = {one.json()["n"] for one in log.deliveries("orders", "g", state="DEAD")}
    assert dead == set(acts) and count_published(log) == 97
    assert max(len(line) for line in read_notes(notes)) == 20
    assert {counts["published"] for counts in engine.snapshot().values()} == {97, 8_000}


@contextmanager
def limit_of(spark: Any, most: int) -> Iterator[None]:
    conf = spark.sparkContext._conf
    conf.set(logs.CONNECTIONS, str(most))
    yield
    conf._jconf.remove(logs.CONNECTIONS)
    logs.limit_connections(spark)


@pytest.mark.shows("S26")
@pytest.mark.parametrize("said", ["1", "many", "-4", "1001"])
def test_a_limit_that_is_none_is_refused(spark: Any, said: str) -> None:
    conf = spark.sparkContext._conf
    conf.set(logs.CONNECTIONS, said)
    try:
        with pytest.raises(penstock.PenstockError, match="whole number from 2 to 1,000"):
            logs.limit_connections(spark)
    finally:
        conf._jconf.remove(logs.CONNECTIONS)


@pytest.mark.shows("S18", "K42")
def test_a_stop_ends_in_finite_time_although_the_database_is_away(
    spark: Any,
    postgres: PostgresServer,
    postgres_log_url: str,
    notes: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(stop, "_ORDER_SECONDS", 0.5)
    with CuttingProxy(postgres.port) as proxy, penstock.open(proxy.url(postgres_log_url)) as log:
        log.append_many("orders", [{"payload": {"seconds": 0.05}, "type": "t"}] * 400)
        one = subscription(handlers.slow, batch_seconds=0.2)
        engine = SparkEngine(log, spark, log.store.url, [one], run=begin(log, "spark", [one.name]))
        engine.start()
        wait_until(lambda: len(read_notes(notes)) > 4)
        proxy.cut_when(lambda statement: "before")
        engine.stop()
        assert engine.wait(PATIENCE_SECONDS), "it waits for a database that does not come back"
    assert "the slices cannot be stopped gracefully" in caplog.text

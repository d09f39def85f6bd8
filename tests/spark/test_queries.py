"""`@app.query`: streaming queries that a run starts, restarts and stops, and whose sinks write every batch once."""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import penstock
from penstock.engine.run_row import begin
from penstock.errors import InvalidQuery
from penstock.log.reader_claims import ReaderClaims
from penstock.spark.handlers.engine import SparkEngine
from penstock.spark.queries.checkpoint import MANAGER, Checkpoint
from penstock.spark.queries.worker import QueryWorker
from tests.support.log_steps import append_orders
from tests.support.raw_sql import raw
from tests.support.spark_pipeline import staged_leftovers
from tests.support.spark_query import forget_newest_commit, visits
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(600)
PATIENCE_SECONDS = 240
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def append_clicks(log: penstock.Log, *clicks: tuple[str, int]) -> None:
    """Clicks of a customer, at a second."""
    payloads = [{"who": who, "at": (NOON + timedelta(seconds=at)).isoformat(), "n": at} for who, at in clicks]
    log.append_many("clicks", [{"payload": one, "type": "click"} for one in payloads])


def clicks_of(events: Any) -> Any:
    return events.selectExpr(
        "offset",
        "get_json_object(string(payload), '$.who') as who",
        "timestamp(get_json_object(string(payload), '$.at')) as at",
        "int(get_json_object(string(payload), '$.n')) as n",
    )


def window_app(url: str) -> penstock.App:
    """Windows into a table, and checked clicks, some of which fail, into a stream."""
    app = penstock.App(url, name="clicks")

    @app.query("clicks", group="windows", sink=penstock.sinks.Table("windows"), max_rows=4)
    def windows(events: Any) -> Any:
        from pyspark.sql.functions import window

        counted = clicks_of(events).withWatermark("at", "5 seconds").groupBy(window("at", "10 seconds"), "who").count()
        return counted.selectExpr("date_format(window.start, 'ss') as begin", "who", "count as clicks")

    retry = penstock.Retry(max_attempts=2, base_seconds=0, jitter=0)

    @app.query("clicks", group="checked", sink=penstock.sinks.Stream("checked", type="click.checked"), retry=retry)
    def checked(events: Any) -> Any:
        return clicks_of(events).selectExpr("offset", "who", "n", "if(n = 4, 'not at four', null) as _error")

    return app


def windows_in(url: str) -> list[tuple[str, str, int]]:
    with raw(url) as sql:
        return sorted(tuple(row) for row in sql("select begin, who, clicks from windows"))


@pytest.mark.shows("S24", "S25")
@pytest.mark.clause("003-3")
def test_queries_run_until_drained_and_write_every_batch_once(
    spark: Any, postgres_log: penstock.Log, postgres_log_url: str, home: Path
) -> None:
    log, url = postgres_log, postgres_log_url
    with raw(url) as sql:
        sql("create table windows (begin text, who text, clicks bigint)")
    append_clicks(log, ("ada", 1), ("ada", 4), ("bob", 9), ("ada", 12), ("ada", 8), ("bob", 15), ("ada", 23))
    first = window_app(url).run(spark=spark, until_drained=True)
    assert windows_in(url) == [("00", "ada", 3), ("00", "bob", 1)], "an empty batch closes the window"
    counts = {name: (one["published"], one["failed"], one["dead"]) for name, one in first.groups.items()}
    assert counts == {"clicks/windows": (7, 0, 0), "clicks/checked": (6, 1, 1)}
    assert sorted(event.json()["n"] for event in log.read("checked")) == [1, 8, 9, 12, 15, 23]
    (dead,) = log.deliveries("clicks", "checked", state="DEAD")
    assert (dead.json()["n"], dead.last_error) == (4, "not at four")

    # The driver died after the sinks' commits and before Spark's: the last batches run again, but are not written.
    for group in ("windows", "checked"):
        forget_newest_commit(home / "checkpoints" / "clicks" / "clicks" / group)
    append_clicks(log, ("ada", 36), ("ada", 5))
    window_app(url).run(spark=spark, until_drained=True)
    assert windows_in(url) == [
        ("00", "ada", 3),
        ("00", "bob", 1),
        ("10", "ada", 1),
        ("10", "bob", 1),
        ("20", "ada", 1),
    ]
    assert sorted(event.json()["n"] for event in log.read("checked")) == [1, 5, 8, 9, 12, 15, 23, 36]
    assert staged_leftovers(url) == [0, 0, 0, 0]
    state = home / "checkpoints" / "clicks" / "clicks" / "windows" / "state"
    assert [*state.rglob("*.zip")] and not [*state.rglob("*.delta")], "the windows are kept in RocksDB"
    assert [one for group in ("windows", "checked") for one in log.readers("clicks", group)] == []


@pytest.mark.shows("S24")
def test_state_of_a_processor_goes_on_in_the_next_run(
    spark: Any, postgres_log: penstock.Log, postgres_log_url: str
) -> None:
    log, url = postgres_log, postgres_log_url

    def run_app() -> None:
        app = penstock.App(url, name="visits")
        sink = penstock.sinks.Table("visits", mode="upsert", keys=["key"])

        @app.query("clicks", group="visits", output_mode="update", sink=sink)
        def seen(events: Any) -> Any:
            keyed = clicks_of(events).selectExpr("who as key", "cast(n as bigint) as second")
            return keyed.groupBy("key").transformWithState(
                statefulProcessor=visits(),
                outputStructType="key string, count long, latest long",
                outputMode="update",
                timeMode="none",
            )

        app.run(spark=spark, until_drained=True)

    with raw(url) as sql:
        sql("create table visits (key text primary key, count bigint, latest bigint)")
    append_clicks(log, ("ada", 1), ("ada", 4), ("bob", 9), ("ada", 12))
    run_app()
    append_clicks(log, ("bob", 15), ("ada", 8))
    run_app()
    with raw(url) as sql:
        assert sorted(sql("select key, count, latest from visits")) == [("ada", 4, 12), ("bob", 2, 15)]


def number_app(url: str, broken: Path) -> penstock.App:
    """The latest state of every number, by a function that fails as long as a file is there."""
    app = penstock.App(url, name="numbers")
    place = str(broken)

    @app.query(
        "orders", group="latest", output_mode="update", sink=penstock.sinks.Table("latest", mode="upsert", keys=["n"])
    )
    def latest(events: Any) -> Any:
        from pyspark.sql import functions as f

        @f.udf("int")
        def fragile(n):  # type: ignore[no-untyped-def]  # Spark reads hints, and cannot read those that are text
            if os.path.exists(place):
                raise RuntimeError("the target is broken")
            return n % 3

        n = f.get_json_object(f.col("payload").cast("string"), "$.n").cast("int")
        return events.groupBy(fragile(n).alias("n")).agg(f.count("*").alias("seen"))

    return app


@pytest.mark.shows("S24")
def test_a_failed_query_is_started_again_and_a_stop_leaves_nothing_claimed(
    spark: Any, postgres_log: penstock.Log, postgres_log_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log, url, broken = postgres_log, postgres_log_url, tmp_path / "broken"
    with raw(url) as sql:
        sql("create table latest (n int primary key, seen bigint)")
    broken.touch()
    append_orders(log, 30)
    queries = number_app(url, broken).queries
    run = begin(log, "spark", ["orders/latest"])
    engine = SparkEngine(log, spark, url, [], [], queries, run=run)
    caplog.set_level(logging.WARNING, "penstock")

    def failures() -> int:
        return sum("started again: RuntimeError: the target is broken" in line for line in caplog.messages)

    engine.start()
    try:
        wait_until(lambda: failures() == 1, "the query to fail", PATIENCE_SECONDS)
        (worker,) = engine._workers
        assert isinstance(worker, QueryWorker)
        before = worker._begun
        wait_until(lambda: worker._begun > before + 1, "two more tries", PATIENCE_SECONDS)
        broken.unlink()
        wait_until(lambda: engine.snapshot()["orders/latest"]["published"] == 30, "it to recover", PATIENCE_SECONDS)
        append_orders(log, 3, first=30)
        wait_until(lambda: engine.snapshot()["orders/latest"]["leases"] == 2, "another claim", PATIENCE_SECONDS)
    finally:
        engine.stop()
        assert engine.wait(PATIENCE_SECONDS), "does not stop"
    with raw(url) as sql:
        assert sorted(sql("select n, seen from latest")) == [(0, 11), (1, 11), (2, 11)]
    assert failures() == 1, "a cause is said once"
    assert log.readers("orders", "latest") == [] and log.stats().groups[0].published == 33
    assert spark.streams.active == []


@pytest.mark.shows("S24")
def test_what_cannot_work_is_refused_before_the_first_claim(
    spark: Any, postgres_log: penstock.Log, postgres_log_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log, url = postgres_log, postgres_log_url
    append_orders(log, 3)
    with raw(url) as sql:
        sql("create table numbers (n int, seen bigint)")

    def refused(function: Any, match: str, **options: Any) -> None:
        app = penstock.App(url)
        app.query("orders", group="g", **{"sink": penstock.sinks.Table("numbers")} | options)(function)
        with pytest.raises(InvalidQuery, match=match):
            app.run(spark=spark, until_drained=True)

    refused(lambda events: events.groupBy("event_type").count(), "append.*watermark")
    refused(lambda events: events.selectExpr("offset as wrong"), "no column 'wrong'")
    refused(lambda events: spark.range(1), "not streaming")
    refused(lambda events: 7, "not a DataFrame")
    refused(lambda events: events.selectExpr("int(1) as n"), "cannot be", checkpoint="/proc/nowhere/checkpoint")
    assert log.groups("orders") == []
    remote = SimpleNamespace(sparkContext=SimpleNamespace(master="spark://far:7077"))
    for place in ("/tmp/here", "file:///tmp/here"):
        with pytest.raises(InvalidQuery, match="on this machine"):
            Checkpoint(remote, place).check()
    set_before = spark.conf.get(MANAGER, None)
    spark.conf.unset(MANAGER)
    seen = {}
    for place in ("/tmp/c", "hdfs://n/c", "s3a://bucket/c"):
        with Checkpoint(spark, place).written_directly():
            seen[place] = spark.conf.get(MANAGER, None)
    assert [value is None for value in seen.values()] == [False, False, True] and spark.conf.get(MANAGER, None) is None
    if set_before is not None:
        spark.conf.set(MANAGER, set_before)


@pytest.mark.shows("S24")
def test_a_new_checkpoint_on_a_group_that_was_read_is_said(
    spark: Any, postgres_log: penstock.Log, postgres_log_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    append_orders(postgres_log, 3)
    app = number_app(postgres_log_url, tmp_path / "none")
    with raw(postgres_log_url) as sql:
        sql("create table latest (n int primary key, seen bigint)")
    postgres_log.create_group("orders", "latest")
    ReaderClaims(postgres_log.store, "orders", "latest").next("old", after=0, limit=2, upto=None)
    worker = QueryWorker(postgres_log, spark, postgres_log_url, app.queries[0])
    worker.start()
    assert worker._columns == ["payload"], "only what the function uses is read"
    said = "\n".join(caplog.messages)
    assert "is new, but reader old has read this group" in said and "windows and state begin empty" in said
    assert "holds 2 events" in said and "penstock release orders latest --reader old" in said

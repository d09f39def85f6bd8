"""Pipelines: a DataFrame in, a DataFrame out, and one bad record never stops them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import sinks
from penstock.spark.pipelines.frames import COLUMNS, use_of
from tests.support.declarations import RETRY_AT_ONCE, pipeline
from tests.support.doc_pages import ROOT, blocks
from tests.support.log_steps import append_orders_of_two_types, count_by_state
from tests.support.spark_pipeline import (
    create_numbers_table,
    run_pipeline_until_drained,
    running_pipeline,
    select_offset_and_n,
    stored_numbers,
)

pytestmark = pytest.mark.timeout(300)


@pytest.mark.shows("S04")
def test_a_pipeline_writes_every_event_once(log: penstock.Log, log_url: str, spark: Any) -> None:
    append_orders_of_two_types(log, 3_000)
    create_numbers_table(log_url)
    counted = run_pipeline_until_drained(
        log, spark, pipeline(select_offset_and_n, sinks.Table("numbers"), batch_size=2_000)
    )
    assert stored_numbers(log_url) == list(range(3_000)) and count_by_state(log) == {"published": 3_000}
    assert counted["leases"] == 2 and counted["published"] == 3_000


def throwing(batch: Any) -> Any:
    """A Python function that throws on one number."""
    from pyspark.sql import functions as f

    @f.udf("bigint")
    def checked(n):  # no type hints: Spark would use them
        if n == 1_234:
            raise ValueError(f"no such order: {n}")
        return n

    return select_offset_and_n(batch).withColumn("n", checked("n"))


@pytest.mark.shows("S04")
def test_a_function_that_throws_on_one_row_of_100_000_loses_only_that_row(
    postgres_log: penstock.Log, postgres_log_url: str, spark: Any
) -> None:
    append_orders_of_two_types(postgres_log, 100_000)
    create_numbers_table(postgres_log_url)
    counted = run_pipeline_until_drained(postgres_log, spark, pipeline(throwing, sinks.Table("numbers")))
    assert stored_numbers(postgres_log_url) == [n for n in range(100_000) if n != 1_234]
    assert count_by_state(postgres_log) == {"published": 99_999, "dead": 1}
    (dead,) = postgres_log.deliveries("orders", "g", state="DEAD")
    assert dead.json() == {"n": 1_234} and dead.last_error == "ValueError: no such order: 1234"
    assert (dead.error_code, dead.attempts, dead.failures) == ("ValueError", 2, 2)
    assert counted["leases"] == 2, "one lease for everything else, and one for the retry"


def dying(batch: Any) -> Any:
    from pyspark.sql import functions as f

    @f.udf("bigint")
    def checked(n):  # no type hints: Spark would use them
        import os

        if n in (7, 20):
            os._exit(3)
        return n

    return select_offset_and_n(batch).withColumn("n", checked("n"))


@pytest.mark.shows("S04")
def test_a_worker_that_dies_is_traced_to_its_event(log: penstock.Log, log_url: str, spark: Any) -> None:
    append_orders_of_two_types(log, 40)
    create_numbers_table(log_url)
    run_pipeline_until_drained(log, spark, pipeline(dying, sinks.Table("numbers"), types=["order.*"]))
    assert stored_numbers(log_url) == [n for n in range(40) if n not in (7, 20)]
    found = {one.json()["n"]: one for one in log.deliveries("orders", "g", state="DEAD")}
    assert {*found} == {7, 20} and all(one.error_code == "process_died" for one in found.values())


def casting(batch: Any) -> Any:
    """SQL that fails on one row after a shuffle, so the partition does not tell which events it came from."""
    return (
        select_offset_and_n(batch)
        .repartition(3, "n")
        .selectExpr("offset", "cast(if(n = 11, 'eleven', n) as bigint) as n")
    )


@pytest.mark.shows("S04")
def test_a_row_that_fails_after_a_shuffle_fails_only_its_event(log: penstock.Log, log_url: str, spark: Any) -> None:
    append_orders_of_two_types(log, 100)
    create_numbers_table(log_url)
    run_pipeline_until_drained(log, spark, pipeline(casting, sinks.Table("numbers")))
    assert stored_numbers(log_url) == [n for n in range(100) if n != 11]
    (dead,) = log.deliveries("orders", "g", state="DEAD")
    assert dead.error_code == "CAST_INVALID_INPUT" and "'eleven'" in str(dead.last_error)
    assert "\tat " not in str(dead.last_error)


def judging(batch: Any) -> Any:
    """Two rows for every event; for every tenth event one of them has an error."""
    from pyspark.sql import functions as f

    both = select_offset_and_n(batch).withColumn("copy", f.explode(f.array(f.lit(0), f.lit(1))))
    wrong = (f.col("n") % 10 == 3) & (f.col("copy") == 1)
    judged = both.withColumn("_error", f.when(wrong, f.concat(f.lit("odd number "), f.col("n"))))
    return judged.where("n <> 5").drop("copy")


@pytest.mark.shows("S04")
def test_rows_with_an_error_fail_their_events_one_by_one(log: penstock.Log, log_url: str, spark: Any) -> None:
    append_orders_of_two_types(log, 200)
    create_numbers_table(log_url)
    run_pipeline_until_drained(log, spark, pipeline(judging, sinks.Table("numbers")))
    good = [n for n in range(200) if n % 10 != 3 and n != 5]
    assert stored_numbers(log_url) == sorted(good * 2), (
        "must hold both rows of every good event and none of a failed one"
    )
    assert count_by_state(log) == {"published": 180, "dead": 20}, "an event without rows must be published"
    dead = {one.json()["n"]: one for one in log.deliveries("orders", "g", state="DEAD", limit=100)}
    assert {*dead} == {n for n in range(200) if n % 10 == 3}
    assert dead[13].last_error == "odd number 13" and dead[13].failures == 2


def crowded(batch: Any) -> Any:
    """Every other event fails."""
    return select_offset_and_n(batch).selectExpr("offset", "if(n % 2 = 0, n, raise_error(concat('odd ', n))) as n")


@pytest.mark.shows("S04")
def test_events_beyond_the_job_limit_of_a_lease_are_released(
    postgres_log: penstock.Log, postgres_log_url: str, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.spark.pipelines.bisect.PIPELINE_JOBS", 2)
    monkeypatch.setattr("penstock.spark.pipelines.bisect._PIECES", 4)
    append_orders_of_two_types(postgres_log, 6)
    create_numbers_table(postgres_log_url)
    counted = run_pipeline_until_drained(
        postgres_log, spark, pipeline(crowded, sinks.Table("numbers"), retry=penstock.Retry(max_attempts=1))
    )
    assert stored_numbers(postgres_log_url) == list(range(0, 6, 2)) and count_by_state(postgres_log) == {
        "published": 3,
        "dead": 3,
    }
    assert counted["released"] > 0, "some events must be released, because a lease may have only so many jobs"
    assert "odd 5" in {str(one.last_error).rpartition(": ")[2] for one in postgres_log.deliveries("orders", "g")}


def test_a_long_batch_is_released_when_the_pipeline_stops(
    postgres_log: penstock.Log, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    monkeypatch.setattr("penstock.spark.pipelines.worker._GRACE_SECONDS", 0.5)
    append_orders_of_two_types(postgres_log, 10)
    begun = threading.Event()

    def slow(batch: Any) -> Any:
        from pyspark.sql import functions as f

        @f.udf("bigint")
        def waiting(n):  # no type hints: Spark would use them
            import time

            time.sleep(60)
            return n

        return select_offset_and_n(batch).withColumn("n", waiting("n"))

    def keep(rows: Any, batch_id: str) -> None:
        begun.set()
        rows.collect()

    with running_pipeline(postgres_log, spark, pipeline(slow, sinks.ForeachBatch(keep))) as worker:
        assert begun.wait(60) and worker.busy
    assert worker.counters.snapshot()["released"] == 10
    lease = postgres_log.claim("orders", "g", claimed_by="next")
    assert lease is not None and len(lease) == 10 and {one.attempts for one in lease.events} == {2}


# --- what is refused at the start -------------------------------------------------------------------------------------


def refused(log: penstock.Log, spark: Any, function: Any, sink: Any) -> str:
    with pytest.raises(penstock.PenstockError) as caught, running_pipeline(log, spark, pipeline(function, sink)):
        pass
    assert isinstance(caught.value, penstock.errors.InvalidPipeline)
    assert [one.group_name for one in log.groups()] == [], "must not declare or claim anything"
    return str(caught.value.message)


def test_errors_of_function_and_sink_are_reported_at_the_start(
    log: penstock.Log, log_url: str, spark: Any, tmp_path: Any
) -> None:
    from pyspark.sql import functions as f

    append_orders_of_two_types(log, 5)
    table = sinks.Table("numbers")
    assert "no table 'numbers'" in refused(log, spark, select_offset_and_n, table)
    create_numbers_table(log_url, "n bigint not null")
    assert "no column 'm'" in refused(
        log, spark, lambda batch: select_offset_and_n(batch).withColumn("m", f.lit(1)), table
    )
    assert "nope" in refused(log, spark, lambda batch: batch.select("nope"), table)
    assert "not a DataFrame" in refused(log, spark, lambda batch: [1], table)
    assert "no `offset`" in refused(log, spark, lambda batch: batch.selectExpr("1 as n", "'x' as _error"), table)
    upsert = sinks.Table("numbers", mode="upsert", keys=["n"])
    assert "does not take these rows" in refused(log, spark, select_offset_and_n, upsert), (
        "there is no unique index on n"
    )
    merge = sinks.Table("numbers", mode="merge", keys=["offset"], add=["n"])
    assert "no column 'offset'" in refused(log, spark, lambda batch: select_offset_and_n(batch).select("n"), merge)
    text = sinks.Table("numbers", mode="merge", keys=["offset"], add=["n"])
    assert "cannot be added up" in refused(log, spark, lambda batch: batch.selectExpr("offset", "'x' as n"), text)
    assert "event_id" in refused(log, spark, lambda batch: batch, sinks.Stream("copies"))
    assert "no column `type`" in refused(log, spark, select_offset_and_n, sinks.Stream("copies"))
    (tmp_path / "file").touch()
    assert "cannot be written" in refused(log, spark, select_offset_and_n, sinks.Parquet(str(tmp_path / "file")))


def test_an_ordered_group_is_refused(log: penstock.Log, spark: Any) -> None:
    log.create_group("orders", "g", ordering="key", retry=RETRY_AT_ONCE)
    with (
        pytest.raises(penstock.OrderedGroup),
        running_pipeline(log, spark, pipeline(select_offset_and_n, sinks.Table("numbers"))),
    ):
        pass


def test_no_password_is_in_the_plan(postgres_log: penstock.Log, spark: Any) -> None:
    from penstock.spark.pipelines.frames import frame
    from penstock.spark.secrets import hide

    append_orders_of_two_types(postgres_log, 1)
    postgres_log.create_group("orders", "g")
    lease = postgres_log.try_claim_unread("orders", "g", limit=1, claimed_by="w")
    assert isinstance(lease, penstock.Lease) and len(lease) == 0 and lease.row.members == 1
    url = hide(spark, postgres_log.store.url.replace("postgres@", "postgres:s3cret@"))
    rows = frame(spark, url, [lease.row])
    assert "s3cret" not in url and "s3cret" not in rows._jdf.queryExecution().toString()
    assert [row["attempts"] for row in rows.collect()] == [1]


@pytest.mark.shows("O09", "S22")
def test_the_examples_of_the_page_run(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run all blocks of docs/how-to/pipelines.md, then everything they declare."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "docs"}
    for block in blocks((ROOT / "docs/how-to/pipelines.md").read_text(encoding="utf-8")):
        if block.kind == "python no-run":
            exec(compile(block.text, "pipelines.md", "exec"), names)
    outcome = names["app"].run(until_drained=True, spark=spark)
    assert not outcome.paused
    with names["app"].open() as log:
        assert count_by_state(log, "orders", "archive") == {"published": 100}
        assert count_by_state(log, "orders", "checked") == {"published": 95, "dead": 5}
        assert len(log.read("checked-orders", limit=200)) == 95
    with sqlite3.connect("shop.db") as database:
        assert database.execute("select total, orders from totals").fetchall() == [(4950, 100)]
    database.close()


def test_only_the_columns_that_are_used_are_read(spark: Any) -> None:
    def used(function: Callable[[Any], Any]) -> list[str]:
        return list(use_of(spark, function).columns)

    assert used(select_offset_and_n) == ["offset", "payload"]
    assert used(lambda batch: batch.where("event_type = 'x'").select("stream")) == ["offset", "event_type", "stream"]
    assert used(lambda batch: batch) == list(COLUMNS)
    assert used(lambda batch: batch.limit(batch.count())) == list(COLUMNS)


def test_rows_that_are_made_of_many_events_are_recognised(spark: Any) -> None:
    from pyspark.sql import functions as f

    upper = f.udf(str.upper, "string")
    countries = spark.createDataFrame([("x", "X")], "event_type string, country string")

    def apart(function: Callable[[Any], Any]) -> bool:
        return use_of(spark, function).apart

    assert apart(lambda batch: batch.where("offset > 1").select("offset", upper("event_type").alias("t")))
    assert apart(
        lambda batch: batch.repartition(3).sort("offset").select("offset", f.explode(f.array("stream", "offset")))
    )
    assert apart(lambda batch: batch.join(countries, "event_type", "left").select("offset", "country"))
    assert apart(lambda batch: batch.select("offset").union(batch.select("offset")))
    assert not apart(lambda batch: batch.groupBy("event_type").agg(f.max("offset").alias("offset")))
    assert not apart(lambda batch: batch.select("offset", "stream").join(batch.select("stream", "payload"), "stream"))
    assert not apart(lambda batch: batch.dropDuplicates(["event_type"]).select("offset"))
    assert not apart(lambda batch: batch.select("offset").mapInArrow(lambda rows: rows, "offset bigint"))


def test_a_column_that_is_first_used_later_is_still_read(log: penstock.Log, log_url: str, spark: Any) -> None:
    """A function that uses other columns at the start than later."""
    calls: list[int] = []

    def fickle(batch: Any) -> Any:
        calls.append(1)
        return batch.selectExpr("offset", "-1l as n") if len(calls) <= 2 else select_offset_and_n(batch)

    append_orders_of_two_types(log, 50)
    create_numbers_table(log_url)
    run_pipeline_until_drained(log, spark, pipeline(fickle, sinks.Table("numbers")))
    assert stored_numbers(log_url) == list(range(50)) and count_by_state(log) == {"published": 50}

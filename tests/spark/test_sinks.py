"""Sinks: what they accept, and that every row arrives once, whenever the driver dies."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import penstock
from penstock import sinks
from penstock.log.pipelines import PipelineStore, StagedRow
from tests.support.children import killed_driver
from tests.support.declarations import pipeline
from tests.support.driver_kill import check_every_row_arrives_once, delivered_numbers, prepare_pipeline
from tests.support.log_steps import append_orders_of_two_types, count_by_state
from tests.support.raw_sql import raw
from tests.support.roles import worker_role
from tests.support.spark_pipeline import run_pipeline_until_drained, select_offset_and_n, staged_leftovers

pytestmark = pytest.mark.timeout(300)


@pytest.mark.shows("S05")
@pytest.mark.parametrize(
    ("kind", "when", "block"),
    [("table", "before", "settled"), ("stream", "after", "settled"), ("parquet", "after", "settled")],
)
def test_a_killed_driver_leaves_every_row_once(
    postgres_log: penstock.Log, postgres_log_url: str, spark: Any, tmp_path: Path, kind: str, when: str, block: str
) -> None:
    """Every step of every sink is in tests/prove."""
    check_every_row_arrives_once(postgres_log, postgres_log_url, spark, str(tmp_path / "lake"), kind, when, block)


@pytest.mark.parametrize("kind", ["upsert", "stream", "parquet"])
def test_the_worker_role_suffices(
    postgres_log: penstock.Log, postgres_log_url: str, spark: Any, tmp_path: Path, kind: str
) -> None:
    place = str(tmp_path / "lake")
    prepare_pipeline(postgres_log, postgres_log_url, kind)
    with worker_role(postgres_log_url) as (url, owner):
        if kind == "upsert":
            owner.execute(f"grant select, insert, update on numbers to {urlsplit(url).username}")  # type: ignore[arg-type]
        with penstock.open(url) as log:
            run_pipeline_until_drained(log, spark, killed_driver.declared(kind, place))
    assert delivered_numbers(postgres_log, postgres_log_url, kind, place, spark) == list(range(killed_driver.EVENTS))


@pytest.mark.shows("S05")
def test_an_upsert_keeps_what_the_last_event_says(log: penstock.Log, log_url: str, spark: Any) -> None:
    append_orders_of_two_types(log, 50)
    with raw(log_url) as sql:
        sql("create table last (k bigint primary key, n bigint, note text default 'mine')")
        sql("insert into last (k, n) values (1, -1)")

    def by_key(batch: Any) -> Any:
        return select_offset_and_n(batch).selectExpr("offset", "n % 5 as k", "n")

    run_pipeline_until_drained(
        log, spark, pipeline(by_key, sinks.Table("last", mode="upsert", keys=["k"]), batch_size=30)
    )
    with raw(log_url) as sql:
        assert sorted(sql("select k, n, note from last")) == [(k, 45 + k, "mine") for k in range(5)]


@pytest.mark.shows("S05")
def test_values_of_every_kind_reach_a_table(log: penstock.Log, log_url: str, spark: Any) -> None:
    from pyspark.sql import functions as f

    append_orders_of_two_types(log, 1)
    postgres = log_url.startswith("postgresql")
    kinds = "at text, bytes blob, exact text, odd real, nested text"
    if postgres:
        kinds = "at timestamptz, bytes bytea, exact numeric(12,2), odd float8, nested jsonb"
    with raw(log_url) as sql:
        sql(f"create table kinds (text text, yes boolean, big bigint, day date, {kinds}, empty text)")

    def every(batch: Any) -> Any:
        return batch.select(
            f.lit('O\'Neil "x" ü ?').alias("text"),
            f.lit(True).alias("yes"),
            f.lit(2**62).alias("big"),
            f.lit(date(2026, 2, 3)).alias("day"),
            f.lit(datetime(2026, 2, 3, 4, 5, 6, 789, tzinfo=UTC)).alias("at"),
            f.lit(b"\x00\xff").alias("bytes"),
            f.lit(Decimal("1234567.89")).alias("exact"),
            f.lit(float("nan")).alias("odd"),
            f.struct(f.lit(1).alias("a"), f.array(f.lit("b")).alias("list")).alias("nested"),
            f.lit(None).cast("string").alias("empty"),
        )

    run_pipeline_until_drained(log, spark, pipeline(every, sinks.Table("kinds")))
    with raw(log_url) as sql:
        ((text, yes, big, day, at, data, exact, odd, nested, empty),) = sql("select * from kinds")
    assert (text, bool(yes), big, str(day), bytes(data)) == ('O\'Neil "x" ü ?', True, 2**62, "2026-02-03", b"\x00\xff")
    assert str(exact) == "1234567.89" and empty is None
    assert (math.isnan(odd) and nested == {"a": 1, "list": ["b"]}) if postgres else (odd is None and "list" in nested)
    assert datetime.fromisoformat(str(at)) == datetime(2026, 2, 3, 4, 5, 6, 789, tzinfo=UTC)


@pytest.mark.shows("S04")
def test_a_row_that_the_table_refuses_fails_its_event_alone(log: penstock.Log, log_url: str, spark: Any) -> None:
    append_orders_of_two_types(log, 40)
    with raw(log_url) as sql:
        sql("create table small (n bigint check (n <> 17))")
    run_pipeline_until_drained(
        log, spark, pipeline(lambda batch: select_offset_and_n(batch).select("n"), sinks.Table("small"))
    )
    assert count_by_state(log) == {"published": 39, "dead": 1}
    with raw(log_url) as sql:
        assert sorted(n for (n,) in sql("select n from small")) == [n for n in range(40) if n != 17]
    (dead,) = log.deliveries("orders", "g", state="DEAD")
    assert dead.json() == {"n": 17} and dead.error_code == "effect_failed"
    assert "settle_failed" in str(dead.last_error) and "constraint" in str(dead.last_error)


@pytest.mark.shows("S05")
def test_rows_become_events_of_another_stream(log: penstock.Log, spark: Any) -> None:
    from pyspark.sql import functions as f

    append_orders_of_two_types(log, 20)

    def totals(batch: Any) -> Any:
        judged = select_offset_and_n(batch).withColumn("_error", f.when(f.col("n") == 4, "not four"))
        return judged.withColumn("customer", f.concat(f.lit("c-"), f.col("n") % 3)).withColumn(
            "headers", f.create_map(f.lit("tenant"), f.lit("eu"))
        )

    run_pipeline_until_drained(log, spark, pipeline(totals, sinks.Stream("totals", type="total", key="customer")))
    found = {one.json()["n"]: one for one in log.read("totals", limit=100)}
    assert {*found} == {n for n in range(20) if n != 4}
    assert found[7].json() == {"n": 7, "customer": "c-1"} and found[7].event_type == "total"
    assert found[7].ordering_key == "c-1" and found[7].headers == {"tenant": "eu"}


@pytest.fixture
def bucket(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A folder in an object store."""
    from moto.server import ThreadedMotoServer
    from pyarrow import fs

    secrets = {"AWS_ACCESS_KEY_ID": "someone", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_EC2_METADATA_DISABLED": "true"}
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    place = (
        f"s3://lake/orders?scheme=http&endpoint_override=127.0.0.1:{port}&region=us-east-1&allow_bucket_creation=true"
    )
    fs.FileSystem.from_uri(place)[0].create_dir("lake")
    yield place
    server.stop()


@pytest.mark.shows("S05")
def test_parquet_in_an_object_store(postgres_log: penstock.Log, spark: Any, bucket: str) -> None:
    from pyarrow import fs, parquet

    append_orders_of_two_types(postgres_log, 500)
    run_pipeline_until_drained(
        postgres_log, spark, pipeline(select_offset_and_n, sinks.Parquet(bucket), batch_size=300)
    )
    files, root = fs.FileSystem.from_uri(bucket)
    table = parquet.read_table(root, filesystem=files)
    assert sorted(table["n"].to_pylist()) == list(range(500))
    hidden = files.get_file_info(fs.FileSelector(f"{root}/_penstock", allow_not_found=True))
    assert [one for one in hidden if one.type == fs.FileType.File] == []


def test_foreach_batch_gets_a_name_that_identifies_its_events(postgres_log: penstock.Log, spark: Any) -> None:
    append_orders_of_two_types(postgres_log, 30)
    seen: dict[str, list[int]] = {}

    def keep(rows: Any, batch_id: str) -> None:
        found = sorted(row["n"] for row in rows.select("n").collect())
        seen[batch_id] = found
        if found[0] == 0 and len(found) > 5:
            raise ValueError("too many at once")

    run_pipeline_until_drained(
        postgres_log, spark, pipeline(select_offset_and_n, sinks.ForeachBatch(keep), batch_size=20)
    )
    assert count_by_state(postgres_log) == {"published": 30}
    assert seen.pop("orders/g/0-20") == list(range(20)) and seen.pop("orders/g/20-30") == list(range(20, 30))
    assert len(seen) > 1, "a refused batch must come again in pieces"
    for name, found in seen.items():
        low, high = map(int, name.removeprefix("orders/g/").split("-"))
        assert found == list(range(low, high)), "the name must identify the events of the batch"
    assert sorted(n for found in seen.values() if len(found) <= 5 or found[0] for n in found) == list(range(20))


def test_rows_staged_by_dead_drivers_are_dropped(log: penstock.Log, log_url: str, spark: Any) -> None:
    append_orders_of_two_types(log, 3)
    log.create_group("orders", "g", retry=penstock.Retry(max_attempts=2, base_seconds=0, jitter=0))
    lease = log.claim("orders", "g", claimed_by="dead")
    assert lease is not None
    aside = PipelineStore(log.store)
    assert aside.stage_rows(lease.id, [[StagedRow(1, b'{"n":1}')], [StagedRow(None, b'{"n":2}')]]).events == 2
    assert aside.drop_leftovers() == 0 and staged_leftovers(log_url)[2] == 2, "rows of an open lease must be kept"
    lease.release()
    assert aside.drop_leftovers() == 1 and staged_leftovers(log_url) == [0, 0, 0, 0]

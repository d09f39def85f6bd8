"""Sinks: what they accept, and that every row arrives once, whenever the driver dies."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

import penstock
from penstock import sinks
from penstock.core.target import Target
from penstock.errors import InvalidPipeline
from penstock.log.pipelines import PipelineStore
from penstock.spark.pipelines.frames import empty_frame
from penstock.spark.pipelines.sinks.choose import pipeline_writer
from penstock.spark.pipelines.sinks.late_names import LateNames
from penstock.spark.pipelines.sinks.totals import aggregates
from tests.support.children import killed_driver
from tests.support.declarations import pipeline
from tests.support.driver_kill import check_every_row_arrives_once, delivered_numbers, prepare_pipeline
from tests.support.log_steps import append_orders_of_two_types, count_by_state
from tests.support.raw_sql import raw
from tests.support.roles import worker_role
from tests.support.spark_pipeline import (
    run_pipeline_until_drained,
    running_pipeline,
    select_offset_and_n,
    staged_leftovers,
)
from tests.support.viewfs import mount_viewfs
from tests.support.waiting import wait_until

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


@pytest.mark.shows("S22")
def test_a_merge_keeps_exact_totals_over_batches_retries_and_redrives(
    log: penstock.Log, log_url: str, spark: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Totals per key in partial sums: several rows of a key in a batch, and an event that fails at first."""
    from pyspark.sql import functions as f

    append_orders_of_two_types(log, 60)
    with raw(log_url) as sql:
        sql("create table totals (k bigint primary key, total bigint, last bigint, note text default 'mine')")
        sql("insert into totals (k, total) values (0, null), (1, 1000)")
    mended: list[int] = []

    def by_key(batch: Any) -> Any:
        rows = select_offset_and_n(batch).selectExpr("offset", "n", "n % 3 as k", "n as total", "n as last")
        wrong = (f.col("n") == 7) & f.lit(not mended)
        return rows.withColumn("_error", f.when(wrong, "not yet")).drop("n")

    def grouped(batch: Any) -> Any:
        return by_key(batch).drop("_error").groupBy("k").agg(f.max("last").alias("total"))

    merge = pipeline(by_key, sinks.Table("totals", mode="merge", keys=["k"], add=["total"]), batch_size=40)
    run_pipeline_until_drained(log, spark, merge)
    assert not aggregates(by_key(empty_frame(spark))) and "merge" not in caplog.text
    mended.append(1)
    assert log.redrive("orders", "g", all=True, by="me").count == 1
    run_pipeline_until_drained(log, spark, merge)
    wanted = [(k, sum(range(k, 60, 3)) + 1000 * (k == 1), "mine") for k in range(3)]
    with raw(log_url) as sql:
        assert sorted(sql("select k, total, note from totals")) == wanted
        assert sorted(sql("select k, last from totals where k <> 1")) == [(0, 57), (2, 59)]
    assert count_by_state(log) == {"published": 60}
    upsert = sinks.Table("totals", mode="upsert", keys=["k"])
    with running_pipeline(log, spark, pipeline(grouped, upsert, group="h", start="end")):
        assert [one.levelname for one in caplog.records if 'mode="merge"' in one.getMessage()] == ["WARNING"]


@pytest.mark.shows("S20", "S22")
@pytest.mark.parametrize("max_attempts", [1, 2])
def test_a_total_that_the_table_refuses_is_not_taken_for_one_event(
    postgres_log: penstock.Log, postgres_log_url: str, spark: Any, max_attempts: int
) -> None:
    """The row of a total names an event, but is made of many: the one that makes it too large has to be found."""
    from pyspark.sql import functions as f

    append_orders_of_two_types(postgres_log, 20)
    with raw(postgres_log_url) as sql:
        sql("create table totals (k bigint primary key, total bigint check (total < 1000), number bigint)")

    def total(batch: Any) -> Any:
        rows = select_offset_and_n(batch).selectExpr("offset", "if(n = 3, 5000, 1) as amount", "0 as k")
        return rows.groupBy("k").agg(
            f.sum("amount").alias("total"), f.count("*").alias("number"), f.max("offset").alias("offset")
        )

    sink = sinks.Table("totals", mode="merge", keys=["k"], add=["total", "number"])
    retry = penstock.Retry(max_attempts=max_attempts, base_seconds=0, jitter=0)
    run_pipeline_until_drained(postgres_log, spark, pipeline(total, sink, retry=retry))
    with raw(postgres_log_url) as sql:
        assert sql("select total, number from totals") == [(19, 19)]
    (dead,) = postgres_log.deliveries("orders", "g", state="DEAD")
    assert dead.json()["n"] == 3 and count_by_state(postgres_log) == {"published": 19, "dead": 1}


@pytest.mark.parametrize("column", ["interval '1' day", "array(interval '1' day)", "parse_json('1')"])
def test_types_that_no_table_takes_are_refused_at_the_start(
    log: penstock.Log, log_url: str, spark: Any, column: str
) -> None:
    append_orders_of_two_types(log, 1)
    with raw(log_url) as sql:
        sql("create table numbers (n text)")
    odd = pipeline(lambda batch: batch.selectExpr(f"{column} as n"), sinks.Table("numbers"))
    with pytest.raises(InvalidPipeline, match="which no table takes"), running_pipeline(log, spark, odd):
        pass
    assert log.groups("orders") == []


@pytest.mark.shows("S22")
def test_an_upsert_with_a_version_takes_batches_in_any_order(log: penstock.Log, log_url: str, spark: Any) -> None:
    """Versions fall while offsets rise: the first batch has the highest ones, as if it had been settled last."""
    append_orders_of_two_types(log, 40)
    with raw(log_url) as sql:
        sql("create table newest (k bigint primary key, n bigint, updated_at timestamp)")
        sql("insert into newest (k, n) values (0, -1), (1, -1)")
        sql("update newest set updated_at = '2999-01-01 00:00:00' where k = 1")

    def versions(batch: Any) -> Any:
        return select_offset_and_n(batch).selectExpr(
            "offset",
            "n % 4 as k",
            "n",
            "timestamp '2026-01-01 00:00:00' - make_interval(0, 0, 0, n div 8) as updated_at",
        )

    newest = sinks.Table("newest", mode="upsert", keys=["k"], version="updated_at")
    run_pipeline_until_drained(log, spark, pipeline(versions, newest, batch_size=25))
    with raw(log_url) as sql:
        assert sorted(sql("select k, n from newest")) == [(0, 0), (1, -1), (2, 2), (3, 3)]


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


def only_numbers(batch: Any) -> Any:
    """Rows that do not name their event."""
    return select_offset_and_n(batch).select("n")


def counted_numbers(batch: Any) -> Any:
    """The same after a shuffle, so that no partition tells where they come from."""
    return select_offset_and_n(batch).groupBy("n").count().select("n")


@pytest.mark.shows("S04")
@pytest.mark.parametrize(
    ("function", "count"), [(select_offset_and_n, 1_500), (only_numbers, 1_500), (counted_numbers, 40)]
)
def test_a_row_that_the_table_refuses_fails_its_event_alone(
    log: penstock.Log, log_url: str, spark: Any, function: Any, count: int
) -> None:
    append_orders_of_two_types(log, count)
    with raw(log_url) as sql:
        sql("create table small (n bigint check (n <> 17))")
    counted = run_pipeline_until_drained(log, spark, pipeline(function, sinks.Table("small")))
    assert count_by_state(log) == {"published": count - 1, "dead": 1}
    assert counted["leases"] == 2, "one lease for everything else, and one for the retry"
    with raw(log_url) as sql:
        assert sorted(n for (n,) in sql("select n from small")) == [n for n in range(count) if n != 17]
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


def two_rows_of_each(batch: Any) -> Any:
    """For every tenth event one of the two has an error."""
    from pyspark.sql import functions as f

    both = select_offset_and_n(batch).withColumn("copy", f.explode(f.array(f.lit(0), f.lit(1))))
    return both.withColumn("_error", f.when(f.expr("n % 10 = 3 and copy = 1"), f.concat(f.lit("odd "), f.col("n"))))


@pytest.mark.shows("S19", "S20")
def test_spark_itself_writes_where_hadoop_knows_the_way(
    log: penstock.Log, log_url: str, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that dies before it has given the names leaves a group that is not drained; the next one gives them."""
    place = tmp_path / "lake"
    url = mount_viewfs(spark, str(place))
    append_orders_of_two_types(log, 50)
    one = pipeline(two_rows_of_each, sinks.Parquet(url), retry=penstock.Retry(max_attempts=1))
    with monkeypatch.context() as dead:
        dead.setattr(LateNames, "finish", lambda self: None)
        with running_pipeline(log, spark, one):
            wait_until(lambda: count_by_state(log) == {"published": 45, "dead": 5}, seconds=120)
    assert not log.drained("orders", "g") and not list(place.glob("*.parquet"))
    assert log.deliveries("orders", "g", state="DEAD")[0].last_error == "odd 3"
    run_pipeline_until_drained(log, spark, one)
    rows = [tuple(row) for row in spark.read.parquet(url).select("n", "copy").collect()]
    assert sorted(rows) == [(n, copy) for n in range(50) if n % 10 != 3 for copy in (0, 1)]
    assert "_error" not in spark.read.parquet(url).columns
    assert not list(place.glob("_penstock/*")) and staged_leftovers(log_url)[3] == 0

    def all_wrong(batch: Any) -> Any:
        """By its plan alone no row is good."""
        return select_offset_and_n(batch).selectExpr("offset", "n", "'wrong' as _error")

    run_pipeline_until_drained(log, spark, replace(one, function=all_wrong, group="h"))
    assert count_by_state(log, "orders", "h") == {"dead": 50}


@pytest.mark.shows("S19")
def test_a_file_system_that_fails_blames_no_event(
    postgres_log: penstock.Log, spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file stands where the hidden folder was."""
    url = mount_viewfs(spark, str(tmp_path))
    with running_pipeline(postgres_log, spark, pipeline(select_offset_and_n, sinks.Parquet(url))):
        (tmp_path / "_penstock").rmdir()
        (tmp_path / "_penstock").touch()
        append_orders_of_two_types(postgres_log, 5)
        wait_until(lambda: "no progress possible" in caplog.text, seconds=120)
        (tmp_path / "_penstock").unlink()
        wait_until(lambda: count_by_state(postgres_log) == {"published": 5}, seconds=120)


@pytest.mark.shows("S19")
def test_a_local_path_is_refused_where_tasks_run_elsewhere(
    postgres_log: penstock.Log, spark: Any, tmp_path: Path
) -> None:
    cluster = SimpleNamespace(sparkContext=SimpleNamespace(master="spark://there:7077"))
    schema = select_offset_and_n(empty_frame(spark)).schema

    def check(sink: sinks.Parquet, session: Any) -> None:
        pipeline_writer(postgres_log, "url", pipeline(select_offset_and_n, sink), session).check(schema)

    for path in (str(tmp_path / "lake"), (tmp_path / "lake").as_uri()):
        with pytest.raises(InvalidPipeline, match="shared=True"):
            check(sinks.Parquet(path), cluster)
        assert not (tmp_path / "lake").exists()
    check(sinks.Parquet(str(tmp_path / "lake"), shared=True), cluster)
    assert sinks.Parquet("lake", shared=True).folders == (str(Path.cwd() / "lake"),)
    assert sinks.Parquet(str(tmp_path)).folders == ()
    for url in ("viewfs://nowhere/lake", "nonsense://nowhere/lake"):
        with pytest.raises(InvalidPipeline, match="cannot be written"):
            check(sinks.Parquet(url), spark)


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
    with raw(log_url) as sql:
        sql("create table numbers (n bigint)")
    table = aside.staging_table(Target("numbers", ["n"], ["bigint"]))
    batches = [pa.RecordBatch.from_pydict({"offset": [offset], "n": [1]}) for offset in (1, None)]
    assert aside.stage_rows(lease.id, table, batches).events == 2
    assert aside.drop_leftovers() == 0 and staged_leftovers(log_url)[2] == 2, "rows of an open lease must be kept"
    lease.release()
    assert aside.drop_leftovers() == 1 and staged_leftovers(log_url) == [0, 0, 0, 0]

"""`spark.read.format("penstock")`: events, deliveries, dead letters and attempts, in equal parts up to the horizon."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import uuid
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.datasource import EqualTo, GreaterThan, In, LessThanOrEqual, StringContains
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

import penstock
from penstock.core.limits import TALLY_EVERY
from penstock.errors import LocalMasterNeeded
from penstock.log import partitions
from penstock.spark import machine
from penstock.spark.source import batch, shapes
from penstock.spark.source.batch import PenstockReader, PushingReader
from penstock.spark.source.options import parse_read
from tests.support.log_steps import append_orders
from tests.support.raw_sql import raw

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def load(spark: Any, url: str, **options: Any) -> DataFrame:
    return spark.read.format("penstock").options(url=url, **{"stream": "orders", **options}).load()


def offsets(frame: DataFrame) -> list[int]:
    return sorted(row["offset"] for row in frame.select("offset").collect())


def sizes(frame: DataFrame) -> list[int]:
    from pyspark.sql.functions import spark_partition_id

    counted = frame.groupBy(spark_partition_id().alias("place")).count().collect()
    return [row["count"] for row in sorted(counted, key=lambda row: row["place"])]


@pytest.fixture(params=["true", "false"], ids=["pushes", "pushes-nothing"])
def pushing(request: pytest.FixtureRequest, spark: Any) -> Any:
    """A session that pushes filters into Python data sources, as ours do, and one that does not (the default)."""
    before = spark.conf.get(PUSHDOWN)
    spark.conf.set(PUSHDOWN, request.param)
    yield request.param == "true"
    spark.conf.set(PUSHDOWN, before)


# --- events -----------------------------------------------------------------------------------------------------------


@pytest.mark.shows("S06")
def test_events_are_read_as_they_were_appended(spark: Any, log: penstock.Log, log_url: str) -> None:
    due = datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    log.append("other", {}, type="t")
    log.append("orders", {"n": 1}, type="order.created", ordering_key="k", partition_key="p")
    log.append(
        "orders",
        b"\x00\xff",
        type="order.blob",
        headers={"tenant": "eu", "": "empty"},
        metadata={"trace": 1},
        available_at=due,
        content_type="image/png",
    )
    frame = load(spark, log_url).orderBy("offset")
    assert ", ".join(f"{one.name} {one.dataType.simpleString()}" for one in frame.schema) == shapes.DDL["events"]
    first, second = frame.collect()
    events = log.read("orders")
    assert [row["event_id"] for row in (first, second)] == [str(one.event_id) for one in events]
    assert [row["offset"] for row in (first, second)] == [one.offset for one in events]
    assert (first["payload"], first["ordering_key"], first["partition_key"]) == (b'{"n":1}', "k", "p")
    assert (first["headers"], first["metadata"], first["available_at"], first["stream"]) == (None, None, None, "orders")
    assert (second["payload"], second["content_type"]) == (b"\x00\xff", "image/png")
    assert second["headers"] == {"tenant": "eu", "": "empty"} and json.loads(second["metadata"]) == {"trace": 1}
    times = frame.selectExpr("unix_micros(created_at) as made", "unix_micros(available_at) as due").collect()
    assert [row["made"] for row in times] == [round(one.created_at.timestamp() * 1e6) for one in events]
    assert times[1]["due"] == round(due.timestamp() * 1e6)


@pytest.mark.shows("S06")
def test_partitions_are_equal_though_streams_share_the_offsets(spark: Any, log: penstock.Log, log_url: str) -> None:
    append_orders(log, 300)
    append_orders(log, 2_000, stream="other")
    for _ in range(50):  # interleaved, one in twenty
        append_orders(log, 2)
        append_orders(log, 38, stream="other")
    append_orders(log, 400)
    assert sizes(load(spark, log_url, partitions=4)) == [200, 200, 200, 200]
    assert sizes(load(spark, log_url, partitions=3)) == [266, 267, 267]
    assert sizes(load(spark, log_url)) == [800], "a few events do not need more tasks"
    assert sizes(load(spark, log_url, stream="other", partitions=2)) == [1950, 1950]
    assert load(spark, log_url, stream="nobody").count() == 0


@pytest.mark.shows("S06")
def test_partitions_use_known_counts(log: penstock.Log) -> None:
    """Partitions are equal with the log's running count, without it, and from the middle of a block."""
    for size in (9_000, 7_000, 4_000):
        append_orders(log, size)
        append_orders(log, 4_000, stream="other")
    places = [event.offset for event in log.read("orders", limit=100_000)]

    def shares(low: int) -> list[int]:
        """The number of events in each of seven ranges."""
        with log.store.transaction(write=False) as tx:
            ranges = partitions.cut(tx, "orders", low, places[-1], 7, exactly=True)
        assert (ranges[0][0], ranges[-1][1]) == (low, places[-1])
        assert all(left[1] == right[0] for left, right in pairwise(ranges))
        return [sum(first < place <= last for place in places) for first, last in ranges]

    starts = (0, 5_000, TALLY_EVERY, TALLY_EVERY + 1, 25_000)
    without = [shares(low) for low in starts]
    assert all(len(one) == 7 and max(one) - min(one) <= 1 for one in without)
    log.reap()
    with log.store.transaction(write=False) as tx:
        known = tx.rows("source.counted", stream="orders", low=0, high=places[-1])
    assert [(row.upto, row.events) for row in known] == [(20_000, 16_000)], (
        "a step must be added once the log has grown enough"
    )
    assert [shares(low) for low in starts] == without


@pytest.mark.shows("S28")
def test_partitions_are_cut_by_size_and_read_in_statements_that_end(
    log: penstock.Log, log_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "PARTITION_EVENTS", 1_000)
    monkeypatch.setattr(partitions, "PARTITION_BYTES", 500_000)
    monkeypatch.setattr(batch, "STATEMENT_BYTES", 100_000)
    monkeypatch.setattr(batch, "_FIRST_ROWS", 100)
    append_orders(log, 2_500)
    log.append_many("large", [{"payload": "x" * 10_000, "type": "t", "headers": {"n": str(n)}} for n in range(120)])

    def read(stream: str, *fields: StructField) -> tuple[list[int], list[Any]]:
        """The sizes of the partitions, and all batches."""
        reader = PenstockReader(parse_read({"url": log_url, "stream": stream}), StructType(list(fields)))
        found = [list(reader.read(piece)) for piece in reader.partitions()]
        return [sum(map(len, one)) for one in found], [one for several in found for one in several]

    offset, payload = StructField("offset", LongType()), StructField("payload", BinaryType())
    sizes_of, batches = read("orders", payload)
    assert (sizes_of, batches[0].schema.names) == ([833, 833, 834], ["payload"])
    numbers = [json.loads(one)["n"] for each in batches for one in each.column("payload").to_pylist()]
    assert numbers == list(range(2_500)) and len(batches) > 6, "a partition takes several statements"
    assert read("large", payload)[0] == [40, 40, 40], "large payloads make small partitions"
    assert read("large", offset)[0] == [120], "payloads that are not read do not count"
    if log.store.kind == "postgresql":
        reader = PenstockReader(parse_read({"url": log_url, "stream": "orders"}), StructType([offset]))
        next(reader.read(reader.partitions()[0]))
        with raw(log_url) as sql:
            mine = "datname = current_database() and pid <> pg_backend_pid()"
            assert sql(f"select query from pg_stat_activity where xact_start is not null and {mine}") == []


@pytest.mark.shows("S06")
def test_reading_stops_at_the_horizon(spark: Any, postgres_log: penstock.Log, postgres_log_url: str) -> None:
    import psycopg

    log = postgres_log
    log.append("orders", {"n": 1}, type="t")
    with psycopg.connect(postgres_log_url) as slow:
        log.append("orders", {"n": 2}, type="t", connection=slow)
        log.append("orders", {"n": 3}, type="t")
        assert [bytes(row["payload"]) for row in load(spark, postgres_log_url).collect()] == [b'{"n":1}']
        slow.commit()
    assert load(spark, postgres_log_url).count() == 3


@pytest.mark.shows("S06")
def test_a_loaded_frame_does_not_change(spark: Any, log: penstock.Log, log_url: str) -> None:
    append_orders(log, 3)
    frame = load(spark, log_url)
    assert frame.count() == 3
    append_orders(log, 2)
    assert frame.count() == 3 and load(spark, log_url).count() == 5


# --- deliveries, dead letters, attempts -------------------------------------------------------------------------------


@pytest.fixture
def worked(log: penstock.Log) -> penstock.Log:
    """Ten orders: in group a two are published, one dead, one retried and six pending; group b has not started."""
    append_orders(log, 5, headers={"tenant": "eu"})
    append_orders(log, 3, stream="other")
    append_orders(log, 5)
    for name in ("a", "b"):
        log.create_group("orders", name, retry=penstock.Retry(base_seconds=3600))
    log.create_group("other", "a")
    lease = log.claim("orders", "a", limit=4, claimed_by="w-1")
    assert lease is not None
    ids = [event.event_id for event in lease.events]
    lease.settle(failed={ids[1]: "not yet"}, dead={ids[2]: ValueError("no such product")})
    return log


@pytest.mark.shows("S06")
def test_deliveries_of_one_group_and_of_all(spark: Any, worked: penstock.Log, log_url: str) -> None:
    frame = load(spark, log_url, what="deliveries", group="a", partitions=3)
    assert Counter(row["state"] for row in frame.collect()) == {"PUBLISHED": 2, "DEAD": 1, "PENDING": 7}
    known = {one.event_id: one for one in worked.deliveries("orders", "a")}
    for row in frame.collect():
        one = known[uuid.UUID(row["event_id"])]
        assert (row["offset"], row["state"], row["attempts"], row["failures"]) == (
            one.offset,
            one.state,
            one.attempts,
            one.failures,
        )
        assert (row["last_error"], row["error_code"], row["group_name"], row["stream"]) == (
            one.last_error,
            one.error_code,
            "a",
            "orders",
        )
        assert (row["published_at"] is None) == (one.published_at is None)
    both = load(spark, log_url, what="deliveries")
    counted = {
        (row["group_name"], row["state"]): row["count"] for row in both.groupBy("group_name", "state").count().collect()
    }
    assert counted == {("a", "PUBLISHED"): 2, ("a", "DEAD"): 1, ("a", "PENDING"): 7, ("b", "PENDING"): 10}
    assert load(spark, log_url, what="deliveries", state="DEAD,PUBLISHED").count() == 3


@pytest.mark.shows("S06")
def test_dead_letters_bring_their_payload(spark: Any, worked: penstock.Log, log_url: str) -> None:
    (dead,) = worked.deliveries("orders", "a", state="DEAD")
    (row,) = load(spark, log_url, what="dead").collect()
    assert row["event_id"] == str(dead.event_id) and row["last_error"] == "no such product"
    assert row["payload"] == b'{"n":2}' and row["headers"] == {"tenant": "eu"} and row["dead_at"] is not None
    assert load(spark, log_url, what="dead", group="b").count() == 0
    assert load(spark, log_url, what="dead", since="2999-01-01T00:00Z").count() == 0


@pytest.mark.shows("S06")
def test_failed_attempts_can_be_read(spark: Any, worked: penstock.Log, log_url: str) -> None:
    found = load(spark, log_url, what="attempts", group="a").orderBy("offset").collect()
    assert [(row["outcome"], row["error"], row["attempt"], row["claimed_by"]) for row in found] == [
        ("failed", "not yet", 1, "w-1"),
        ("dead", "no such product", 1, "w-1"),
    ]
    assert [row["event_type"] for row in found] == ["order.created"] * 2


# --- less than everything ---------------------------------------------------------------------------------------------


@pytest.mark.shows("S06")
def test_options_that_narrow_a_read(spark: Any, log: penstock.Log, log_url: str) -> None:
    log.append_many("orders", [{"payload": {"n": n}, "type": f"order.{n % 3}"} for n in range(30)])
    events = log.read("orders")
    first = events[0].offset
    assert offsets(load(spark, log_url, after=first + 3, upto=first + 5)) == [first + 4, first + 5]
    assert load(spark, log_url, types="order.1, order.2").count() == 20
    later = (events[-1].created_at + timedelta(microseconds=1)).isoformat()
    assert load(spark, log_url, since=later).count() == 0 and load(spark, log_url, until=later).count() == 30
    assert load(spark, log_url, since=events[0].created_at.isoformat(), until=later).count() == 30
    assert load(spark, log_url, until=events[0].created_at.isoformat()).count() == 0
    few = load(spark, log_url, columns="event_type,offset")
    assert few.columns == ["event_type", "offset"] and few.count() == 30
    mine = spark.read.schema("offset bigint, headers map<string,string>").format("penstock")
    assert mine.options(url=log_url, stream="orders").load().orderBy("offset").first().asDict() == {
        "offset": first,
        "headers": None,
    }


@pytest.mark.shows("S06")
def test_filters_are_right_whether_the_session_pushes_them_or_not(
    spark: Any, log: penstock.Log, log_url: str, pushing: bool
) -> None:
    """One loaded frame, filtered in two ways in one query: filters pushed for one must not affect the other."""
    log.append_many("orders", [{"payload": {"n": n}, "type": f"order.{n % 3}"} for n in range(30)])
    first = log.read("orders", limit=1)[0].offset
    frame = load(spark, log_url)
    low, high = frame.where(f"offset < {first + 3}"), frame.where(f"offset >= {first + 28}")
    assert offsets(low) == [first, first + 1, first + 2] and offsets(high) == [first + 28, first + 29]
    assert offsets(low.union(high)) == [first, first + 1, first + 2, first + 28, first + 29]
    assert low.alias("l").join(high.alias("h")).count() == 6
    assert frame.count() == 30
    assert frame.where("event_type = 'order.1' and payload = X'7B226E223A317D'").count() == 1


@pytest.mark.shows("S06")
def test_filters_that_are_asked_for_reach_the_database(
    spark: Any, log: penstock.Log, log_url: str, pushing: bool
) -> None:
    log.append_many("orders", [{"payload": {"n": n}, "type": f"order.{n % 3}"} for n in range(30)])
    events = log.read("orders")
    first = events[0].offset
    made = events[0].created_at.isoformat()
    for condition, count in [
        (f"offset > {first + 3} and offset <= {first + 5}", 2),
        (f"offset = {first}", 1),
        ("event_type in ('order.1', 'order.2')", 20),
        ("event_type = 'order.1' and event_type = 'order.2'", 0),
        (f"created_at >= timestamp'{made}' and created_at < timestamp'2999-01-01'", 30),
        (f"created_at < timestamp'{made}'", 0),
        ("event_type like '%1' and offset is not null", 10),
    ]:
        frame = load(spark, log_url, pushdown="true").where(condition)
        assert frame.count() == count, condition
    left = load(spark, log_url, pushdown="true").where(f"offset > {first + 3}")
    plan = left._jdf.queryExecution().executedPlan().toString()
    assert (f"> {first + 3}" in plan) is not pushing, "Spark must evaluate only filters that were not pushed"


@pytest.mark.shows("S06")
def test_pushed_filters_limit_what_is_read(worked: penstock.Log, log_url: str) -> None:
    schema = StructType([StructField("offset", LongType()), StructField("event_type", StringType())])

    def read(what: str, *filters: Any) -> tuple[int, list[Any]]:
        """How many rows are read, and which filters are left to Spark."""
        reader = PushingReader(parse_read({"url": log_url, "stream": "orders", "what": what}), schema)
        rest = list(reader.pushFilters(list(filters)))
        return sum(len(batch) for piece in reader.partitions() for batch in reader.read(piece)), rest

    first = worked.read("orders", limit=1)[0].offset
    odd = StringContains(("event_type",), "x")
    assert read("events", GreaterThan(("offset",), first), odd) == (9, [odd])
    assert read("events", EqualTo(("event_type",), "no.such")) == (0, [])
    assert read("deliveries", EqualTo(("state",), "DEAD")) == (1, [])
    assert read("deliveries", In(("group_name",), ("b", "c")), LessThanOrEqual(("offset",), first)) == (1, [])
    assert read("dead", GreaterThan(("created_at",), datetime(2999, 1, 1, tzinfo=UTC))) == (0, [])
    unknown = EqualTo(("last_error",), "not yet")
    assert read("deliveries", unknown) == (20, [unknown])


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.shows("S06")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"strem": "orders"}, "[invalid_option] The data source has no option 'strem'. Do you mean 'stream'?"),
        ({"what": "everything"}, "'what' is one of events, deliveries, dead, attempts, not 'everything'"),
        ({"columns": "offset,no_such"}, "events have no column 'no_such'"),
        ({"stream": ""}, "[missing_field] spark.read needs the option 'stream'"),
        ({"stream": "a b"}, "[invalid_name]"),
        ({"what": "dead", "group": "nobody"}, "[unknown_group] There is no group 'nobody' on 'orders'"),
        ({"group": "a"}, "Events belong to no group"),
        ({"partitions": "few"}, "'partitions' is a whole number"),
        ({"partitions": "0"}, "must be at least 1"),
        ({"since": "yesterday"}, "is an ISO time"),
        ({"since": "2026-07-01T12:00"}, "[naive_datetime]"),
        ({"what": "deliveries", "state": "LOST"}, "A state is one of PENDING, CLAIMED, PUBLISHED, DEAD"),
        ({"state": "DEAD"}, "Only deliveries have a state"),
        ({"what": "attempts", "since": "2026-07-01T12:00Z"}, "go with what=events"),
        ({"pushdown": "yes"}, "true or false"),
        ({"maxRowsPerTrigger": "5"}, "spark.read has no option 'maxrowspertrigger'"),
        ({"url": "mysql://host/db"}, "[invalid_url]"),
    ],
    ids=lambda one: "-".join(map(str, one)) if isinstance(one, dict) else "",
)
def test_invalid_options_are_refused_with_clear_errors(
    spark: Any, tmp_path: Path, options: dict[str, str], words: str
) -> None:
    url = f"sqlite:///{tmp_path}/log.db"
    with pytest.raises(AnalysisException) as caught:
        load(spark, **{"url": url, **options}).count()
    assert words in str(caught.value)


@pytest.mark.shows("S06")
def test_a_user_schema_cannot_add_columns(spark: Any, log_url: str) -> None:
    frame = spark.read.schema("offset string").format("penstock").options(url=log_url, stream="orders").load()
    with pytest.raises(AnalysisException, match="events have no column offset string"):
        frame.count()


@pytest.mark.shows("S06")
def test_an_unreachable_database_is_reported(spark: Any) -> None:
    with pytest.raises(PySparkException, match="store_unavailable") as caught:
        load(spark, "postgresql://user:hunter2@127.0.0.1:1/none").count()
    assert "hunter2" not in str(caught.value)


def test_a_sqlite_file_is_read_on_its_own_machine_only(
    log: penstock.Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/other.db"
    machine.check_here(url, machine.here())
    with pytest.raises(LocalMasterNeeded, match="is a SQLite file on elsewhere"):
        machine.check_here(url, "elsewhere 1")
    machine.check_here("postgresql://host/db", "elsewhere 1")
    monkeypatch.setenv("PENSTOCK_SPARK_MASTER", "local[2,8]")
    machine.check_driver(url)
    monkeypatch.setenv("PENSTOCK_SPARK_MASTER", "spark://host:7077")
    machine.check_driver("postgresql://host/db")
    with pytest.raises(LocalMasterNeeded, match="the Spark master is spark://host:7077"):
        machine.check_driver(url)


# --- sessions ---------------------------------------------------------------------------------------------------------


@pytest.mark.shows("S06")
def test_registering_by_hand_sets_the_master_for_workers(spark: Any, log: penstock.Log, log_url: str) -> None:
    append_orders(log, 2)
    penstock.spark.register(spark)
    assert spark.sparkContext.environment["PENSTOCK_SPARK_MASTER"] == "local[2,8]"
    assert load(spark, log_url).count() == 2


@pytest.mark.shows("S06")
def test_no_password_is_shown(spark: Any, postgres_log: penstock.Log, postgres_log_url: str) -> None:
    append_orders(postgres_log, 2)
    url = postgres_log_url.replace("postgres@", "postgres:hunter2@")  # the test server accepts any password
    assert "hunter2" in url
    frame = load(spark, url).where("offset > 0")
    assert frame.count() == 2
    shown = frame._jdf.queryExecution().toString() + spark.sparkContext._jsc.sc().getConf().toDebugString()
    assert "hunter2" not in shown and "penstock" in shown


@pytest.mark.shows("S06", "S08")
@pytest.mark.timeout(300)
def test_reading_and_writing_over_spark_connect(tmp_path: Path) -> None:
    """In a separate process: a local Connect server, which finds the data source by itself."""
    url = f"sqlite:///{tmp_path}/log.db"
    with penstock.open(url) as log:
        append_orders(log, 10)
    script = textwrap.dedent("""
        import sys
        from pyspark.sql import SparkSession
        from penstock.spark import register
        spark = SparkSession.builder.remote("local[2]").getOrCreate()
        assert "connect" in type(spark).__module__
        url = sys.argv[1]
        read = lambda: spark.read.format("penstock").options(url=url, stream="orders").load()
        print(read().where("offset > 3").count())
        register(spark)
        rows = read().selectExpr("offset as n")
        rows.write.format("penstock").options(url=url, stream="copy", type="copied").mode("append").save()
        try:
            spark.read.format("penstock").options(url=url, stream="orders", what="dead", group="nobody").load().count()
        except Exception as error:
            print("unknown_group" in str(error))
        spark.stop()
    """)
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-c", script, url],
        cwd=tmp_path,
        env={**environment, "SPARK_LOCAL_DIRS": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == ["7", "True"], done.stderr
    with penstock.open(url) as log:
        assert sorted(event.json()["n"] for event in log.read("copy")) == list(range(1, 11))

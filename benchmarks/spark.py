"""What Penstock costs on Spark: the same work as a hand-written job, with a lifecycle for every event."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import orjson
import psycopg

import penstock
from benchmarks.claiming import fill
from benchmarks.engine import ratio, subscribed
from benchmarks.handlers import WARM
from benchmarks.measuring import Figure, overall, seconds
from penstock.declare.pipeline import Pipeline
from penstock.spark import register
from penstock.spark.handlers.engine import SparkEngine
from penstock.spark.session import make_session
from tests.support.postgres_server import PostgresServer

EVENTS = 500_000  # measured, behind the first WARM
LEASE = 50_000
READ = 1_000_000
_numbers = count()


def run(server: PostgresServer) -> list[Figure]:
    url = server.create_database()
    with penstock.open(url) as log, psycopg.connect(url, autocommit=True) as connection:
        fill(log, "orders", WARM + EVENTS)
        connection.execute("create table totals (key text, orders bigint, amount double precision)")
        connection.execute("vacuum analyze")
        with session("local[2]") as spark:
            bench = Bench(url, log, connection, spark)
            figures = [*bench.lifecycle(), bench.failures(), *bench.pipeline(), *bench.latency()]
        with session("local[1]") as spark:
            one = Bench(url, log, connection, spark).drain("parse")
        figures.append(ratio("two cores vs one, isolated handler", bench.isolated, one, None))
        fill(log, "many", READ)
        connection.execute("vacuum analyze")
        with session("local[2]") as spark:
            figures.append(Bench(url, log, connection, spark).reading())
        return figures


@contextlib.contextmanager
def session(master: str) -> Iterator[Any]:
    """A session of its own; the JVM is quiet."""
    spark = make_session(master, name="bench", config={"spark.ui.enabled": "false"})
    register(spark)
    try:
        yield spark
    finally:
        spark.stop()


class Bench:
    """One log, one session, a new group for every run."""

    def __init__(self, url: str, log: penstock.Log, connection: psycopg.Connection[Any], spark: Any) -> None:
        self.url = url
        self.log = log
        self.connection = connection
        self.spark = spark
        self.isolated = 0.0

    # --- handlers ------------------------------------------------------------------------------------------------

    def lifecycle(self) -> list[Figure]:
        self.bare()  # workers are started, and have imported what they need
        first = seconds(lambda: self.drain("parse", isolation="inline"))
        rates: dict[str, list[float]] = {"bare": [], "inline": [], "isolated": [], "keyed": []}
        for _ in range(3):
            rates["bare"].append(self.bare())
            rates["inline"].append(self.drain("parse", isolation="inline"))
            rates["isolated"].append(self.drain("parse"))
            rates["keyed"].append(self.drain("parse_and_count", isolation="inline"))
        bare, inline, isolated, keyed = (max(rate) for rate in rates.values())
        self.isolated = isolated
        return [
            ratio("inline handler vs a bare Spark job", inline, bare, 0.9),
            ratio("isolated handler (default) vs a bare Spark job", isolated, bare, 0.7),
            ratio("stateful handler, 1,000 keys, vs a bare Spark job", keyed, bare, 0.5),
            Figure("the first run of a group, cold workers, all 600 k", first, None, unit="s"),
        ]

    def bare(self) -> float:
        """A hand-written job: tasks read the same ranges as Arrow and parse; nothing is kept of it."""
        url = self.url
        ranges = [(after, after + LEASE) for after in range(WARM, WARM + EVENTS, LEASE)]
        select = (
            'select "offset", uuid_send(event_id), event_type, payload, content_type, headers::text, metadata::text, '
            "partition_key, ordering_key, timestamptz_send(available_at), timestamptz_send(created_at) "
            'from penstock.events where stream = \'orders\' and "offset" > {} and "offset" <= {} order by "offset"'
        )

        def parse(pieces: Iterator[tuple[int, int]]) -> Iterator[int]:
            from adbc_driver_postgresql import dbapi

            done = 0
            with dbapi.connect(url) as connection, connection.cursor() as cursor:
                for low, high in pieces:
                    cursor.execute(select.format(low, high))
                    for payload in cursor.fetch_arrow_table().column(3).to_pylist():
                        orjson.loads(payload)
                        done += 1
            yield done

        job = self.spark.sparkContext.parallelize(ranges, len(ranges)).mapPartitions(parse)
        took = seconds(lambda: _same(sum(job.collect()), EVENTS))
        return EVENTS / took

    def drain(self, handler: str, **policy: Any) -> float:
        """Events a second behind the warm-up: slices are at work, and leases have their size."""
        group = f"s{next(_numbers)}"
        engine = SparkEngine(
            self.log, self.spark, self.url, [subscribed(handler, "orders", group, **policy)], until_drained=True
        )
        engine.start()
        engine.wait()
        row = self.connection.execute(
            "select min(low) filter (where low >= %s), "
            "extract(epoch from max(ended_at) - min(claimed_at) filter (where low >= %s))::float8 "
            "from penstock.leases join penstock.groups using (group_id) where group_name = %s and members > 0",
            (WARM, WARM, group),
        ).fetchone()
        assert row is not None
        return float(WARM + EVENTS - row[0]) / float(row[1])

    def failures(self) -> Figure:
        failing, none = [], []
        for _ in range(6):
            none.append(self.drain("one_percent_never"))
            failing.append(self.drain("one_percent_behind"))
        what = "1 % failing on every attempt, until all are DEAD or PUBLISHED, vs none"
        return ratio(what, overall(failing), overall(none), 0.8)

    # --- latency -------------------------------------------------------------------------------------------------

    def latency(self) -> list[Figure]:
        """From the append to the settle, at ten events a second."""
        group = f"s{next(_numbers)}"
        engine = SparkEngine(self.log, self.spark, self.url, [subscribed("parse", "trickle", group)])
        engine.start()
        for number in range(200):
            self.log.append("trickle", {"id": number}, type="order.created")
            time.sleep(0.1)
        time.sleep(2)
        engine.stop()
        engine.wait()
        rows = self.connection.execute(
            "select extract(epoch from l.ended_at - e.created_at)::float8 from penstock.leases l "
            "join penstock.groups g using (group_id) join penstock.events e on e.stream = 'trickle' "
            'and e."offset" > l.low and e."offset" <= l.upto where g.group_name = %s and l.members > 0 order by 1',
            (group,),
        ).fetchall()
        waits = [row[0] for row in rows][20:]  # the first ones met cold workers
        assert len(waits) >= 150
        return [
            Figure("append to settled at 10 events/s, p50", 1000 * waits[len(waits) // 2], 250, False, "ms"),
            Figure("append to settled at 10 events/s, p99", 1000 * waits[int(len(waits) * 0.99)], None, False, "ms"),
        ]

    # --- DataFrames ----------------------------------------------------------------------------------------------

    def pipeline(self) -> list[Figure]:
        """Parse, filter, aggregate, and the rows into a table; against the same query over Parquet files."""
        with tempfile.TemporaryDirectory() as place:
            self._export(place)
            self._over_parquet(place), self._pipeline()
            took = [(self._over_parquet(place), self._pipeline()) for _ in range(3)]
        files, log = min(one for one, _ in took), min(two for _, two in took)
        count = WARM + EVENTS
        return [
            ratio(
                "DataFrame pipeline into a table vs the same query over Parquet files", count / log, count / files, 0.5
            )
        ]

    def _export(self, place: str) -> None:
        frame = self.spark.read.format("penstock").option("url", self.url).option("stream", "orders").load()
        frame.write.mode("overwrite").parquet(place)

    def _over_parquet(self, place: str) -> float:
        self.connection.execute("truncate totals")
        url = self.url

        def insert(rows: Iterator[Any]) -> None:
            into = "copy totals (key, orders, amount) from stdin"
            with psycopg.connect(url) as connection, connection.cursor() as cursor, cursor.copy(into) as copy:
                for row in rows:
                    copy.write_row(tuple(row))

        took = seconds(lambda: totals(self.spark.read.parquet(place)).foreachPartition(insert))
        self._check_totals()
        return took

    def _pipeline(self) -> float:
        """From the first claim to the last settle."""
        self.connection.execute("truncate totals")
        group = f"s{next(_numbers)}"
        declared = Pipeline("orders", group, totals, penstock.sinks.Table("totals"))
        engine = SparkEngine(self.log, self.spark, self.url, [], [declared], until_drained=True)
        engine.start()
        engine.wait()
        self._check_totals()
        row = self.connection.execute(
            "select extract(epoch from max(ended_at) - min(claimed_at))::float8 from penstock.leases "
            "join penstock.groups using (group_id) where group_name = %s and members > 0",
            (group,),
        ).fetchone()
        assert row is not None
        return float(row[0])

    def _check_totals(self) -> None:
        row = self.connection.execute("select sum(orders) from totals").fetchone()
        assert row is not None
        _same(int(row[0]), WARM + EVENTS - (WARM + EVENTS) // 1000)

    def reading(self) -> Figure:
        """The data source against the same read in tasks of our own."""
        url = self.url
        low = self.connection.execute(
            "select min(\"offset\") - 1 from penstock.events where stream = 'many'"
        ).fetchone()
        assert low is not None
        pieces = [(low[0] + READ * n // 8, low[0] + READ * (n + 1) // 8) for n in range(8)]

        def read(some: Iterator[tuple[int, int]]) -> Iterator[int]:
            from adbc_driver_postgresql import dbapi

            select = (
                'select "offset", event_id::text, event_type, payload, content_type, headers::text, metadata::text, '
                "partition_key, ordering_key, available_at, created_at from penstock.events "
                'where stream = \'many\' and "offset" > {} and "offset" <= {} order by "offset"'
            )
            with dbapi.connect(url) as connection, connection.cursor() as cursor:
                for low, high in some:
                    cursor.execute(select.format(low, high))
                    yield sum(batch.num_rows for batch in cursor.fetch_record_batch())

        def bare() -> None:
            _same(sum(self.spark.sparkContext.parallelize(pieces, 8).mapPartitions(read).collect()), READ)

        def source() -> None:
            frame = self.spark.read.format("penstock").option("url", url).option("stream", "many").load()
            frame.write.format("noop").mode("overwrite").save()

        bare(), source()
        took = [(seconds(bare), seconds(source)) for _ in range(3)]
        return ratio(
            "data source, batch read of 1 M events, vs a bare Arrow read in tasks",
            READ / min(two for _, two in took),
            READ / min(one for one, _ in took),
            0.8,
        )


def totals(batch: Any) -> Any:
    """Orders and amounts by customer, without those of one in a thousand."""
    from pyspark.sql import functions as f

    order = f.from_json(f.col("payload").cast("string"), "id bigint, amount double").alias("order")
    orders = batch.select("ordering_key", order).where("order.id % 1000 <> 0")
    grouped = orders.groupBy(f.col("ordering_key").alias("key"))
    return grouped.agg(f.count("*").alias("orders"), f.sum("order.amount").alias("amount"))


def _same(found: int, wanted: int) -> None:
    assert found == wanted, f"{found:,} of {wanted:,}"

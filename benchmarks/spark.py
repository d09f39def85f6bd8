"""What Penstock costs on Spark: the same work as a hand-written job, with a lifecycle for every event."""

from __future__ import annotations

import contextlib
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
from penstock.engine.run_row import running
from penstock.spark import register
from penstock.spark.handlers.engine import SparkEngine
from penstock.spark.session import make_session
from tests.support.postgres_server import PostgresServer

EVENTS = 500_000  # measured, behind the first WARM
LEASE = 50_000
READ = 1_000_000
LATENCIES = 400  # a p99 of fewer events would be that of one or two accidents
FEW = 60_000  # in a stream for slow handlers, a third of them to get warm
SCALED = (("spin", "few"), ("parse", "orders"))  # whose rate on two cores is held against that on one
_numbers = count()


def run(server: PostgresServer) -> list[Figure]:
    url = server.create_database()
    with penstock.open(url) as log, psycopg.connect(url, autocommit=True) as connection:
        fill(log, "orders", WARM + EVENTS)
        fill(log, "few", FEW)
        connection.execute("vacuum analyze")
        with session("local[2]") as spark:
            bench = Bench(url, log, connection, spark)
            figures = [*bench.lifecycle(), bench.failures(), *bench.latency()]
            two = [bench.settled(handler, stream) for handler, stream in SCALED]
        with session("local[1]") as spark:
            alone = Bench(url, log, connection, spark)
            one = [alone.settled(handler, stream) for handler, stream in SCALED]
        figures += [
            ratio("two cores vs one, handler of 100 µs of CPU", two[0], one[0], 1.6),
            ratio("two cores vs one, JSON-parsing handler", two[1], one[1], None),
        ]
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


@contextlib.contextmanager
def engine_of(log: penstock.Log, spark: Any, url: str, *declared: Any, **options: Any) -> Iterator[SparkEngine]:
    """A started engine with a row in `runs`, through which it is stopped."""
    with running(log, "spark", [], "bench", lambda wanted: None) as run:
        engine = SparkEngine(log, spark, url, *declared, run=run, **options)
        engine.start()
        try:
            yield engine
        finally:
            engine.stop()
            engine.wait()


class Bench:
    """One log, one session, a new group for every run."""

    def __init__(self, url: str, log: penstock.Log, connection: psycopg.Connection[Any], spark: Any) -> None:
        self.url = url
        self.log = log
        self.connection = connection
        self.spark = spark

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
        return [
            ratio("inline handler vs a bare Spark job", inline, bare, 0.95),
            ratio("isolated handler (default) vs a bare Spark job", isolated, bare, 0.85),
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

    def drain(self, handler: str, stream: str = "orders", **policy: Any) -> float:
        """Events a second behind the warm-up: slices are at work, and leases have their size."""
        group = f"s{next(_numbers)}"
        declared = [subscribed(handler, stream, group, **policy)]
        with engine_of(self.log, self.spark, self.url, declared, until_drained=True) as engine:
            engine.wait()
        warm, end = (WARM, WARM + EVENTS) if stream == "orders" else (WARM + EVENTS + FEW // 3, WARM + EVENTS + FEW)
        row = self.connection.execute(
            "select min(low) filter (where low >= %s), "
            "extract(epoch from max(ended_at) - min(claimed_at) filter (where low >= %s))::float8 "
            "from penstock.leases join penstock.groups using (group_id) where group_name = %s and members > 0",
            (warm, warm, group),
        ).fetchone()
        assert row is not None
        return float(end - row[0]) / float(row[1])

    def settled(self, handler: str, stream: str) -> float:
        """Events settled a second, once a third of them is settled.

        `drain` counts from a claim. With several workers they are busy with earlier events for a while after it.
        """
        self.drain(handler, stream)
        row = self.connection.execute(
            "with done as (select ended_at, published, sum(published) over (order by ended_at, id) as so_far, "
            "sum(published) over () as total from penstock.leases "
            "where group_id = (select max(group_id) from penstock.groups) and members > 0) "
            "select (sum(published) filter (where so_far > total / 3))::float8 / extract(epoch from max(ended_at) "
            "- max(ended_at) filter (where so_far <= total / 3))::float8 from done"
        ).fetchone()
        assert row is not None
        return float(row[0])

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
        with engine_of(self.log, self.spark, self.url, [subscribed("parse", "trickle", group)]):
            for number in range(LATENCIES):
                self.log.append("trickle", {"id": number}, type="order.created")
                time.sleep(0.1)
            time.sleep(2)
        rows = self.connection.execute(
            "select extract(epoch from l.ended_at - e.created_at)::float8 from penstock.leases l "
            "join penstock.groups g using (group_id) join penstock.events e on e.stream = 'trickle' "
            'and e."offset" > l.low and e."offset" <= l.upto where g.group_name = %s and l.members > 0 order by 1',
            (group,),
        ).fetchall()
        waits = [row[0] for row in rows][20:]  # the first ones met cold workers
        assert len(waits) >= LATENCIES - 50
        return [
            Figure("append to settled at 10 events/s, p50", 1000 * waits[len(waits) // 2], 60, False, "ms"),
            Figure("append to settled at 10 events/s, p99", 1000 * waits[int(len(waits) * 0.99)], 300, False, "ms"),
        ]

    # --- reading -------------------------------------------------------------------------------------------------

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


def _same(found: int, wanted: int) -> None:
    assert found == wanted, f"{found:,} of {wanted:,}"

"""What DataFrame pipelines cost: against the same query over files, with errors, into every sink, with bad rows."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

import penstock
from benchmarks.claiming import fill, orders
from benchmarks.engine import ratio
from benchmarks.measuring import Figure, overall, seconds
from benchmarks.spark import engine_of, session
from penstock.declare.pipeline import Pipeline
from tests.support.postgres_server import PostgresServer

EVENTS = 600_000
BAD = 200_000  # events of the stream in which a few are bad
TURNS = 3
IDLE_SECONDS = 30.0
_numbers = count()


def run(server: PostgresServer) -> list[Figure]:
    url = server.create_database()
    with penstock.open(url) as log, psycopg.connect(url, autocommit=True) as connection:
        fill(log, "orders", EVENTS)
        fill(log, "bad", BAD)
        connection.execute("create table totals (key text, orders bigint, amount double precision)")
        connection.execute("create table plain (id bigint, amount double precision check (amount >= 0))")
        connection.execute("vacuum analyze")
        with session("local[2]") as spark, tempfile.TemporaryDirectory(prefix="penstock-bench-") as place:
            bench = Bench(url, log, connection, spark, Path(place))
            figures = [bench.table(), bench.errors(), bench.parquet(), bench.stream(), *bench.bad_rows()]
        return [*figures, *idle(server)]


class Bench:
    """One log, one session, a new group for every run."""

    def __init__(
        self, url: str, log: penstock.Log, connection: psycopg.Connection[Any], spark: Any, place: Path
    ) -> None:
        self.url = url
        self.log = log
        self.connection = connection
        self.spark = spark
        self.place = place

    def drain(self, function: Callable[[Any], Any], sink: Any, stream: str = "orders", **policy: Any) -> float:
        """Seconds from the first claim to the last settle, and until every file has its name."""
        group = f"p{next(_numbers)}"
        declared = Pipeline(stream, group, function, sink, **policy)
        with engine_of(self.log, self.spark, self.url, [], [declared], until_drained=True) as engine:
            engine.wait()
        row = self.connection.execute(
            "select extract(epoch from max(ended_at) - min(claimed_at))::float8 from penstock.leases "
            "join penstock.groups using (group_id) where group_name = %s and members > 0",
            (group,),
        ).fetchone()
        assert row is not None
        return float(row[0])

    def by_turns(self, one: Callable[[], float], two: Callable[[], float]) -> tuple[float, float]:
        """Each once to get warm, then by turns; runs a second of each, over all turns."""
        one(), two()
        pairs = [(one(), two()) for _ in range(TURNS)]
        return overall([1 / first for first, _ in pairs]), overall([1 / second for _, second in pairs])

    # --- the figures ---------------------------------------------------------------------------------------------

    def table(self) -> Figure:
        """Parse, filter, aggregate, and the rows into a table; against the same query over Parquet files."""
        place = str(self.place / "export")
        self._read("orders").write.mode("overwrite").parquet(place)

        def over_files() -> float:
            self.connection.execute("truncate totals")
            took = seconds(lambda: totals(self.spark.read.parquet(place)).foreachPartition(self._insert()))
            self._check_totals()
            return took

        def over_log() -> float:
            self.connection.execute("truncate totals")
            took = self.drain(totals, penstock.sinks.Table("totals"))
            self._check_totals()
            return took

        files, log = self.by_turns(over_files, over_log)
        what = "DataFrame pipeline into a table vs the same query over Parquet files"
        return ratio(what, log * EVENTS, files * EVENTS, 0.65)

    def errors(self) -> Figure:
        def without() -> float:
            self.connection.execute("truncate plain")
            return self.drain(plain, penstock.sinks.Table("plain"), "bad")

        def with_errors() -> float:
            self.connection.execute("truncate plain")
            return self.drain(
                plain_with_errors, penstock.sinks.Table("plain"), "bad", retry=penstock.Retry(max_attempts=1)
            )

        none, some = self.by_turns(without, with_errors)
        what = "the same rows with `_error` in 1 % of them vs without the column"
        return ratio(what, some * BAD, none * BAD, 0.8)

    def parquet(self) -> Figure:
        def bare() -> float:
            frame = plain(self._read("orders"))
            return seconds(lambda: frame.write.mode("overwrite").parquet(str(self.place / "bare")))

        def ours() -> float:
            return self.drain(plain, penstock.sinks.Parquet(str(self.place / f"files{next(_numbers)}")))

        theirs, mine = self.by_turns(bare, ours)
        what = "Parquet sink vs a bare read of the log and write.parquet of the same rows"
        return ratio(what, mine * EVENTS, theirs * EVENTS, 0.8)

    def stream(self) -> Figure:
        def append() -> float:
            name, events = f"copy{next(_numbers)}", orders(10_000)
            return seconds(lambda: [self.log.append_many(name, events) for _ in range(BAD // 10_000)])

        def ours() -> float:
            return self.drain(as_events, penstock.sinks.Stream(f"copy{next(_numbers)}"), "bad")

        theirs, mine = self.by_turns(append, ours)
        return ratio("Stream sink vs append_many of the same events", mine * BAD, theirs * BAD, 0.5)

    def bad_rows(self) -> list[Figure]:
        """Until all are DEAD or PUBLISHED, each event having one attempt."""
        once = {"retry": penstock.Retry(max_attempts=1)}

        def drained(function: Callable[[Any], Any], dead: int) -> Callable[[], float]:
            def work() -> float:
                self.connection.execute("truncate plain")
                took = self.drain(function, penstock.sinks.Table("plain"), "bad", **once)
                row = self.connection.execute("select count(*) from plain").fetchone()
                assert row == (BAD - dead,), row
                return took

            return work

        none, refused = self.by_turns(drained(plain_offset, 0), drained(one_refused, 1))
        healthy, raising = self.by_turns(drained(parsed_by_udf, 0), drained(three_raise, 3))
        return [
            ratio("one row that the table refuses in 200 k vs none", refused * BAD, none * BAD, 0.5),
            ratio("three rows that make a UDF raise in 200 k vs none", raising * BAD, healthy * BAD, 0.3),
        ]

    # --- around them ---------------------------------------------------------------------------------------------

    def _read(self, stream: str) -> Any:
        return self.spark.read.format("penstock").option("url", self.url).option("stream", stream).load()

    def _insert(self) -> Callable[[Iterator[Any]], None]:
        url = self.url

        def insert(rows: Iterator[Any]) -> None:
            into = "copy totals (key, orders, amount) from stdin"
            with psycopg.connect(url) as connection, connection.cursor() as cursor, cursor.copy(into) as copy:
                for row in rows:
                    copy.write_row(tuple(row))

        return insert

    def _check_totals(self) -> None:
        row = self.connection.execute("select sum(orders) from totals").fetchone()
        assert row == (EVENTS - EVENTS // 1000,), row


# --- what the pipelines do -------------------------------------------------------------------------------------------


def _order(batch: Any) -> Any:
    from pyspark.sql import functions as f

    return f.from_json(f.col("payload").cast("string"), "id bigint, amount double").alias("order")


def totals(batch: Any) -> Any:
    """Orders and amounts by customer, without those of one in a thousand."""
    from pyspark.sql import functions as f

    chosen = batch.select("ordering_key", _order(batch)).where("order.id % 1000 <> 0")
    grouped = chosen.groupBy(f.col("ordering_key").alias("key"))
    return grouped.agg(f.count("*").alias("orders"), f.sum("order.amount").alias("amount"))


def plain(batch: Any) -> Any:
    return batch.select(_order(batch)).select("order.id", "order.amount")


def plain_offset(batch: Any) -> Any:
    return batch.select("offset", _order(batch)).select("offset", "order.id", "order.amount")


def plain_with_errors(batch: Any) -> Any:
    from pyspark.sql import functions as f

    error = f.when(f.col("id") % 100 == 7, f.lit("one in a hundred")).alias("_error")
    return plain_offset(batch).select("*", error)


def one_refused(batch: Any) -> Any:
    """The table does not take an amount below zero."""
    from pyspark.sql import functions as f

    amount = f.when(f.col("offset") % BAD == 777, f.lit(-1.0)).otherwise(f.col("amount")).alias("amount")
    return plain_offset(batch).select("offset", "id", amount)


def as_events(batch: Any) -> Any:
    return batch.select("payload", "event_type", "ordering_key")


def parsed_by_udf(batch: Any) -> Any:
    return _through_udf(batch, ())


def three_raise(batch: Any) -> Any:
    return _through_udf(batch, (1_111, 99_999, 150_000))


def _through_udf(batch: Any, bad: tuple[int, ...]) -> Any:
    from pyspark.sql import functions as f

    @f.udf("bigint")
    def checked(offset: int, number: int) -> int:
        if offset % BAD in bad:
            raise ValueError("a bad row")
        return number

    rows = plain_offset(batch)
    return rows.select("offset", checked("offset", "id").alias("id"), "amount")


# --- an idle run -----------------------------------------------------------------------------------------------------

APP = """
from penstock import App

app = App({url!r}, name="idle")
for name in ("one", "two", "three"):
    @app.subscribe(name, group="g")
    def handle(event):
        pass
"""


def idle(server: PostgresServer) -> list[Figure]:
    """What `penstock run` on Spark costs while nothing happens: the processor's time, and transactions."""
    url = server.create_database()
    with tempfile.TemporaryDirectory(prefix="penstock-idle-") as place, penstock.open(url) as log:
        for name in ("one", "two", "three"):
            log.append(name, {}, type="t")
        app = Path(place) / "app.py"
        app.write_text(APP.format(url=url))
        command = [sys.executable, "-m", "penstock.cli", "run", str(app), "--master", "local[2]", "--quiet"]
        process = subprocess.Popen(command, start_new_session=True)
        with contextlib.closing(psycopg.connect(url, autocommit=True)) as sql:
            deadline = time.monotonic() + 120
            while sum(group.published for group in log.stats().groups) < 3:
                assert time.monotonic() < deadline
                time.sleep(0.5)
            time.sleep(20)  # slices have ended, and the JVM has come to rest
            before = _spent(process.pid), _transactions(sql), time.monotonic()
            time.sleep(IDLE_SECONDS)
            after = _spent(process.pid), _transactions(sql), time.monotonic()
        process.terminate()
        process.wait()
    took = after[2] - before[2]
    share = 100 * (after[0] - before[0]) / took
    return [
        Figure("idle `penstock run` on Spark, three groups, of a core", share, 3, False, "%"),
        Figure("the same, transactions a second", (after[1] - before[1]) / took, None, False, "/s"),
    ]


def _spent(pid: int) -> float:
    """Seconds of processor time of a process and all below it."""
    ticks = os.sysconf("SC_CLK_TCK")
    parents: dict[int, int] = {}
    times: dict[int, float] = {}
    for one in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = one.read_text().rsplit(")", 1)[1].split()
            parents[int(one.parent.name)] = int(fields[1])
            times[int(one.parent.name)] = (int(fields[11]) + int(fields[12])) / ticks

    def below(candidate: int) -> bool:
        while candidate not in (0, 1):
            if candidate == pid:
                return True
            candidate = parents.get(candidate, 0)
        return False

    return sum(spent for one, spent in times.items() if below(one))


def _transactions(sql: psycopg.Connection[Any]) -> int:
    row = sql.execute(
        "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()"
    ).fetchone()
    assert row is not None
    return int(row[0])

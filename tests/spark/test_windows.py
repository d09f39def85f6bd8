"""Windows and state after `readStream`, on RocksDB: exact on a fixed trace.

Every piece of the trace is appended and read by its own query, from the same checkpoint, so windows and sessions stay
open between queries. Once, the newest commit is removed, so that its batch runs again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.spark import register
from tests.support.spark_query import forget_newest_data, read_orders_stream, visits

pytestmark = pytest.mark.timeout(300)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

# Key and second of every event; the watermark follows five seconds behind the latest.
TRACE = [
    [("a", 1), ("a", 4), ("b", 9), ("a", 12)],
    [("a", 8), ("b", 15), ("a", 23)],  # 8 is late, but in time
    [("a", 5), ("b", 17), ("a", 36)],  # 5 is too late: its windows closed at 18
    [("a", 60)],
]


@pytest.fixture(autouse=True)
def source(spark: Any) -> None:
    register(spark)
    provider = spark.conf.get("spark.sql.streaming.stateStore.providerClass")
    assert provider.endswith("RocksDBStateStoreProvider")


class Sink:
    """Keeps the rows of every batch by number, so a repeated batch replaces itself."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Any]] = {}

    def write(self, batch: Any, number: int) -> None:
        self.batches[number] = batch.collect()

    @property
    def rows(self) -> list[Any]:
        return [row for number in sorted(self.batches) for row in self.batches[number]]


def timed(frame: Any) -> Any:
    """Key and event time, from the payload."""
    return frame.selectExpr(
        "get_json_object(string(payload), '$.key') as key",
        "timestamp(get_json_object(string(payload), '$.at')) as at",
    ).withWatermark("at", "5 seconds")


def run_trace(
    spark: Any,
    log: penstock.Log,
    url: str,
    checkpoint: Path,
    make: Callable[[Any], Any],
    *,
    mode: str = "append",
    trace: Sequence[Sequence[tuple[str, int]]] = TRACE,
) -> list[Any]:
    """Run a trace, one query per piece; return all output rows."""
    sink = Sink()

    def run() -> None:
        query = (
            make(timed(read_orders_stream(spark, url)))
            .writeStream.outputMode(mode)
            .foreachBatch(sink.write)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    for number, piece in enumerate(trace):
        happened = [
            {"payload": {"key": key, "at": (NOON + timedelta(seconds=at)).isoformat()}, "type": "click"}
            for key, at in piece
        ]
        log.append_many("orders", happened)
        run()
        if number == 1:
            before = {batch: sorted(map(str, rows)) for batch, rows in sink.batches.items()}
            forget_newest_data(checkpoint)
            run()
            assert {batch: sorted(map(str, rows)) for batch, rows in sink.batches.items()} == before
    assert log.stats().groups[0].published == sum(map(len, trace))
    return sink.rows


def seconds(moment: datetime) -> int:
    return round((moment.replace(tzinfo=UTC) - NOON).total_seconds())


OutputOf = Callable[..., list[Any]]


@pytest.fixture
def output_of(spark: Any, postgres_log: penstock.Log, postgres_log_url: str, tmp_path: Path) -> OutputOf:
    """Run the trace through a function of a DataFrame; give all output rows."""
    return partial(run_trace, spark, postgres_log, postgres_log_url, tmp_path / "c")


def counted(rows: list[Any]) -> list[tuple[str, int, int, int]]:
    """Key, begin, end and count of every window."""
    return sorted((row.key, seconds(row.window.start), seconds(row.window.end), row["count"]) for row in rows)


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Spark gives times to Python in the time zone of the process."""
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.shows("S09")
def test_tumbling_windows_are_exact(output_of: OutputOf) -> None:
    from pyspark.sql.functions import window

    rows = output_of(
        lambda frame: frame.groupBy(window("at", "10 seconds"), "key").count(),
    )
    assert counted(rows) == [
        ("a", 0, 10, 3),
        ("a", 10, 20, 1),
        ("a", 20, 30, 1),
        ("a", 30, 40, 1),
        ("b", 0, 10, 1),
        ("b", 10, 20, 2),
    ]


@pytest.mark.shows("S09")
def test_sliding_windows_are_exact(output_of: OutputOf) -> None:
    from pyspark.sql.functions import window

    rows = output_of(
        lambda frame: frame.groupBy(window("at", "10 seconds", "5 seconds"), "key").count(),
    )
    assert counted(rows) == [
        ("a", -5, 5, 2),
        ("a", 0, 10, 3),
        ("a", 5, 15, 2),
        ("a", 10, 20, 1),
        ("a", 15, 25, 1),
        ("a", 20, 30, 1),
        ("a", 30, 40, 1),
        ("a", 35, 45, 1),
        ("b", 0, 10, 1),
        ("b", 5, 15, 1),
        ("b", 10, 20, 2),
        ("b", 15, 25, 2),
    ]


@pytest.mark.shows("S09")
def test_session_windows_are_exact(output_of: OutputOf) -> None:
    from pyspark.sql.functions import col, session_window

    rows = output_of(
        lambda frame: frame.groupBy(session_window("at", "5 seconds").alias("window"), col("key")).count(),
    )
    # The late event at 8 joins 1 to 4 and 12, two sessions of an earlier query, into one.
    assert counted(rows) == [("a", 1, 17, 4), ("a", 23, 28, 1), ("a", 36, 41, 1), ("b", 9, 14, 1), ("b", 15, 22, 2)]


@pytest.mark.shows("S09")
def test_transform_with_state_is_exact(output_of: OutputOf) -> None:
    rows = output_of(
        lambda frame: (
            frame.selectExpr("key", "unix_seconds(at) as second")
            .groupBy("key")
            .transformWithState(
                statefulProcessor=visits(),
                outputStructType="key string, count long, latest long",
                outputMode="update",
                timeMode="none",
            )
        ),
        mode="update",
        trace=TRACE[:2],
    )
    assert sorted((row.key, row["count"], row.latest - round(NOON.timestamp())) for row in rows) == [
        ("a", 3, 12),
        ("a", 5, 23),
        ("b", 1, 9),
        ("b", 2, 15),
    ]

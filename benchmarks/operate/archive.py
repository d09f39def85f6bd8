"""An archive against Spark's own copy of the same events: `spark.read` to `write.parquet`, and nothing else."""

from __future__ import annotations

import tempfile
from pathlib import Path

import psycopg

import penstock
from benchmarks.claiming import fill
from benchmarks.measuring import Figure, overall, seconds
from benchmarks.spark import session
from penstock.archive.write import archive
from tests.support.postgres_server import PostgresServer

EVENTS = 500_000
TURNS = 3


def run(server: PostgresServer) -> list[Figure]:
    url = server.create_database()
    with penstock.open(url) as log, psycopg.connect(url, autocommit=True) as connection:
        fill(log, "orders", EVENTS)
        connection.execute("vacuum analyze")
        with session("local[2]") as spark, tempfile.TemporaryDirectory() as folder:
            bare, ours = [], []
            for turn in range(TURNS + 1):
                copied = seconds(lambda turn=turn: _copy(spark, url, f"{folder}/bare-{turn}"))  # type: ignore[misc]
                kept = seconds(lambda turn=turn: _archive(log, spark, f"{folder}/ours-{turn}"))  # type: ignore[misc]
                if turn:  # the first one warms up
                    bare.append(EVENTS / copied)
                    ours.append(EVENTS / kept)
    detail = f"{overall(ours):,.0f} events/s against {overall(bare):,.0f}"
    ratio = overall(ours) / overall(bare)
    return [Figure("archive vs `spark.read` → `write.parquet`", ratio, 0.8, detail=detail)]


def _copy(spark: object, url: str, place: str) -> None:
    options = {"url": url, "stream": "orders", "archive": "no"}
    frame = spark.read.format("penstock").options(**options).load()  # type: ignore[attr-defined]
    frame.write.parquet(place)
    assert any(Path(place).glob("*.parquet"))


def _archive(log: penstock.Log, spark: object, place: str) -> None:
    assert archive(log, "orders", place, spark=spark).events == EVENTS

"""Pruning must keep up with appending, and a log that is pruned must not grow."""

from __future__ import annotations

import tempfile
from pathlib import Path

import psycopg

import penstock
from benchmarks.appending import orders
from benchmarks.claiming import LEASE, drain
from benchmarks.measuring import Figure, seconds
from tests.support.postgres_server import PostgresServer

EVENTS = 100_000
CYCLES = 10


def run(server: PostgresServer) -> list[Figure]:
    url = server.create_database()
    with penstock.open(url) as log, psycopg.connect(url, autocommit=True) as connection:
        rates, sizes = [], []
        for _ in range(CYCLES):
            rates.append(cycle(log))
            connection.execute("vacuum")
            sizes.append(_relations(connection))
    with tempfile.TemporaryDirectory() as folder, penstock.open(f"sqlite:///{folder}/log.db") as log:
        file = []
        for _ in range(CYCLES):
            cycle(log)
            file.append(Path(folder, "log.db").stat().st_size)
    best = max(appending / pruning for appending, pruning in rates)
    return [
        Figure("prune vs append of the same events", best, 1.0, at_least=True, detail=f"{EVENTS:,} events a cycle"),
        _flat("PostgreSQL relations after vacuum", sizes),
        _flat("SQLite file", file),
    ]


def cycle(log: penstock.Log) -> tuple[float, float]:
    """Append, handle and prune; the seconds that appending and pruning took."""
    log.create_group("orders", "fraud")

    def append() -> None:
        for _ in range(EVENTS // LEASE):
            log.append_many("orders", orders(LEASE))

    def prune() -> None:
        assert log.prune("orders", upto=log.end()).count == EVENTS

    appending = seconds(append)
    drain(log, "orders", "fraud")
    log.reap()
    return appending, seconds(prune)


def _relations(connection: psycopg.Connection) -> int:
    row = connection.execute(
        "select sum(pg_total_relation_size(c.oid)) from pg_class c join pg_namespace n on n.oid = c.relnamespace "
        "where n.nspname = 'penstock' and c.relkind = 'r'"
    ).fetchone()
    assert row is not None
    return int(row[0])


def _flat(what: str, sizes: list[int]) -> Figure:
    return Figure(
        f"{what}: cycle {CYCLES} vs cycle 3",
        sizes[-1] / sizes[2],
        1.05,
        at_least=False,
        detail=f"{sizes[2] / 1e6:.1f} MB, then {sizes[-1] / 1e6:.1f} MB",
    )

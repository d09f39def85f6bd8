"""How fast a backlog of jobs that do nothing drains, and what a finished job leaves behind."""

from __future__ import annotations

from pathlib import Path

import psycopg

import penstock
from benchmarks.jobs.workers import app, drain, loads, orders
from benchmarks.measuring import Figure
from benchmarks.side_by_side import PGMQ, PGQUEUER, ask, peer, together
from tests.support.postgres_server import PostgresServer

JOBS = 600_000
PGQUEUERS_JOBS, PGMQS_JOBS = 100_000, 300_000  # theirs take longer
TARGETS = ((1, 8, 3), (2, 6, 2.5))


def run(server: PostgresServer, folder: Path) -> list[Figure]:
    figures = []
    for workers, queuer, queue in TARGETS:
        rate, left = _ours(server, folder, workers)
        others = (("PGQueuer", _pgqueuer(server, workers), queuer), ("pgmq", _pgmq(server, workers), queue))
        for name, theirs, target in others:
            what = f"{workers} × `penstock worker`, jobs that do nothing, vs {name}'s {workers}"
            figures.append(Figure(what, rate / theirs, target, detail=f"{rate:,.0f} jobs/s against {theirs:,.0f}"))
        if workers == 1:
            figures += left
    return figures


def _ours(server: PostgresServer, folder: Path, workers: int) -> tuple[float, list[Figure]]:
    url = server.create_database()
    with penstock.open(url) as log:
        for numbers in loads(JOBS):
            log.submit_many(orders(numbers))
    file = app(url, folder, "pass")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("vacuum analyze")
        connection.execute("checkpoint")
        wal, dead = _wal(connection), _changed(connection)
        rate = drain(url, file, workers)
        wal, dead = _wal(connection) - wal, _changed(connection) - dead
    return rate, [
        Figure("WAL per finished job, full leases", wal / JOBS, 4, at_least=False, unit="bytes"),
        Figure(f"dead tuples on events, deliveries, groups after {JOBS:,} jobs", dead, 0, at_least=False, unit="rows"),
    ]


def _wal(connection: psycopg.Connection) -> int:
    row = connection.execute("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
    assert row is not None
    return int(row[0])


def _changed(connection: psycopg.Connection) -> int:
    """Rows that were updated or deleted, each of which leaves a dead tuple."""
    row = connection.execute(
        "select coalesce(sum(n_tup_upd + n_tup_del), 0) from pg_stat_user_tables "
        "where schemaname = 'penstock' and relname in ('events', 'deliveries', 'groups')"
    ).fetchone()
    assert row is not None
    return int(row[0])


def _pgqueuer(server: PostgresServer, workers: int) -> float:
    url = server.create_database()
    ask(peer(PGQUEUER, "install", url))
    ask(peer(PGQUEUER, "load", url, 2 * PGQUEUERS_JOBS))
    return together(peer(PGQUEUER, "drain", url, PGQUEUERS_JOBS // workers, "nothing"), workers)


def _pgmq(server: PostgresServer, workers: int) -> float:
    url = server.create_database()
    ask(peer(PGMQ, "install", url))
    ask(peer(PGMQ, "load", url, PGMQS_JOBS))
    return together(peer(PGMQ, "drain", url, PGMQS_JOBS // workers), workers)

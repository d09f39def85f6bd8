"""What the happy path leaves behind: WAL, dead tuples, and claims that stay as quick as the first."""

from __future__ import annotations

import statistics
import time

import psycopg

import penstock
from benchmarks.appending import orders
from benchmarks.claiming import LEASE, drain, fill
from benchmarks.measuring import Figure
from tests.support.postgres_server import PostgresServer

BACKLOG = 1_000_000
CLAIMS = 100_000


def run(server: PostgresServer) -> list[Figure]:
    url = server.create_database()
    with penstock.open(url) as log, psycopg.connect(url, autocommit=True) as connection:
        return [
            backlog(log, connection),
            *wal(log, connection),
            *dead_tuples(url, connection),
            held_snapshot(server),
        ]


def claim_seconds(log: penstock.Log, stream: str, group: str, times: int = 200) -> float:
    """The median time of a claim of 100 events (without reading them), each given back."""
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        lease = log.claim(stream, group, limit=100, claimed_by="bench")
        taken.append(time.perf_counter() - begin)
        assert lease is not None
        lease.settle()
    return statistics.median(taken)


def backlog(log: penstock.Log, connection: psycopg.Connection) -> Figure:
    fill(log, "few", 30_000)
    fill(log, "many", BACKLOG)
    connection.execute("vacuum analyze penstock.events")
    for stream in ("few", "many"):
        log.create_group(stream, "claims")
    few = claim_seconds(log, "few", "claims")
    many = claim_seconds(log, "many", "claims")
    detail = f"{many * 1e3:.2f} ms against {few * 1e3:.2f} ms"
    return Figure("claim time with 1 M events waiting vs 10 k", many / few, 1.3, at_least=False, detail=detail)


def wal(log: penstock.Log, connection: psycopg.Connection) -> list[Figure]:
    def position() -> int:
        row = connection.execute("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
        assert row is not None
        return int(row[0])

    log.create_group("many", "wal")
    connection.execute("checkpoint")
    before = position()
    handled = drain(log, "many", "wal")
    full = (position() - before) / handled
    log.create_group("trickle", "wal")
    cost, count = 0, 200
    for _ in range(count):
        log.append("trickle", orders(1)[0]["payload"], type="order.created")
        before = position()
        assert drain(log, "trickle", "wal") == 1
        cost += position() - before
    return [
        Figure("WAL per event and group, full leases", full, 64, at_least=False, unit="bytes"),
        Figure("WAL per event and group, one event a lease (10 events/s)", cost / count, None, unit="bytes"),
    ]


def dead_tuples(url: str, connection: psycopg.Connection) -> list[Figure]:
    """After a million successes: how many rows were updated or deleted, each of which leaves a dead tuple."""
    changed = (
        "select coalesce(sum(n_tup_upd + n_tup_del), 0) from pg_stat_user_tables "
        "where schemaname = 'penstock' and relname in ('events', 'deliveries', 'groups')"
    )

    def dead() -> int:
        row = connection.execute(changed).fetchone()
        assert row is not None
        return int(row[0])

    before = dead()
    with penstock.open(url) as log:  # its sessions report what they did when they end
        log.create_group("many", "million")
        assert drain(log, "many", "million") == BACKLOG
    what = "dead tuples on events, deliveries, groups after 1 M successes"
    return [Figure(what, dead() - before, 0, at_least=False, unit="rows")]


def held_snapshot(server: PostgresServer) -> Figure:
    """100,000 claims while somebody holds an old snapshot, so that vacuum can clean nothing."""
    url = server.create_database()
    with penstock.open(url) as log, psycopg.connect(url) as holder:
        fill(log, "held", CLAIMS + 2 * LEASE)
        log.create_group("held", "claims")
        holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        holder.execute("select count(*) from penstock.groups")
        fresh, late = [], []
        for number in range(CLAIMS):
            begin = time.perf_counter()
            lease = log.claim("held", "claims", limit=1, claimed_by="bench")
            taken = time.perf_counter() - begin
            assert lease is not None
            lease.settle()
            if number < 2_000:
                fresh.append(taken)
            elif number >= CLAIMS - 2_000:
                late.append(taken)
        holder.rollback()
    before, after = statistics.median(fresh), statistics.median(late)
    detail = f"{after * 1e3:.2f} ms against {before * 1e3:.2f} ms"
    return Figure(
        "claim time after 100,000 claims under a held snapshot vs fresh",
        after / before,
        1.3,
        at_least=False,
        detail=detail,
    )

"""A log to look at: many groups that are through with it, dead letters of several kinds, jobs and an operation."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg

import penstock
from benchmarks.claiming import LEASE, fill
from tests.support.postgres_server import PostgresServer

GROUPS = 50
KINDS = ("no such customer", "the card was refused", "timed out", "bad address", "already shipped")
BURIED = 5_000  # dead letters of one settle


@dataclass(frozen=True)
class Filled:
    """The log, and what pages show of it."""

    url: str
    log: penstock.Log
    group: str
    event_id: uuid.UUID
    dead_id: uuid.UUID
    operation: int


@contextmanager
def filled(server: PostgresServer, events: int, dead: int) -> Iterator[Filled]:
    """A database of its own with such a log."""
    url = server.create_database()
    with penstock.open(url) as log:
        yield _fill(url, log, events, dead)


def _fill(url: str, log: penstock.Log, events: int, dead: int) -> Filled:
    """Append events, let every group through but the first, which buries its first ones."""
    fill(log, "orders", events)
    for number in range(GROUPS):
        log.create_group("orders", f"g{number:02}")
    bury(log, "g00", dead)
    for number in range(GROUPS):
        while (lease := unread(log, f"g{number:02}", 50_000)) is not None:
            lease.settle()
    log.submit_many("email:send", [{"payload": {"to": n}} for n in range(1_000)])
    log.claim_job("bench", ["email:send"])
    for _ in range(3):
        log.reap()
    log.record_metrics()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("vacuum analyze")
    letters = log.deliveries("orders", "g00", state="DEAD", limit=2)
    moved = log.operation("redrive", "orders", "g00", event_ids=[letters[0].event_id], by="bench").start()
    log.run_operations(5.0)
    one = log.read("orders", after=events // 2, limit=1)[0]
    assert moved.id is not None
    return Filled(url, log, "g00", one.event_id, letters[1].event_id, moved.id)


def unread(log: penstock.Log, group: str, limit: int) -> penstock.Lease | None:
    """A lease whose events nobody needs."""
    found = log.try_claim_unread("orders", group, limit=limit, claimed_by="bench")
    return found if isinstance(found, penstock.Lease) else None


def bury(log: penstock.Log, group: str, dead: int) -> None:
    """Make the first events of a group dead letters, of a few kinds."""
    while dead > 0:
        lease = log.claim("orders", group, limit=min(dead, BURIED, LEASE), claimed_by="bench")
        assert lease is not None
        lease.settle(dead={one.event_id: KINDS[one.offset % len(KINDS)] for one in lease.events})
        dead -= len(lease.events)

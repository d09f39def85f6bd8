"""Looking at a long log must cost what looking at a short one costs."""

from __future__ import annotations

from functools import partial

import psycopg

import penstock
from benchmarks.claiming import drain, fill
from benchmarks.measuring import Figure, best
from tests.support.postgres_server import PostgresServer


def prepare(log: penstock.Log, connection: psycopg.Connection, count: int) -> object:
    """A log of which all is handled but 10 dead letters and a few that wait; returns one event's id."""
    fill(log, "orders", count)
    log.create_group("orders", "fraud")
    lease = log.claim("orders", "fraud", limit=100, claimed_by="bench")
    assert lease is not None
    lease.settle(dead={event.event_id: "no" for event in lease.events[:10]})
    drain(log, "orders", "fraud")
    log.reap()  # what a running worker does every few seconds: it keeps the running counts, too
    connection.execute("vacuum analyze")
    return log.read("orders", after=count // 2, limit=1)[0].event_id


def run(server: PostgresServer) -> list[Figure]:
    times = {}
    for count in (10_000, 1_000_000):
        url = server.create_database()
        with penstock.open(url) as log, psycopg.connect(url, autocommit=True) as connection:
            one = prepare(log, connection, count)
            times[count] = {
                "state = 'DEAD' on the view": best(partial(dead, connection), times=15),
                "one event's deliveries": best(partial(event, connection, one), times=15),
                "stats()": best(log.stats, times=15),
            }
    small, large = times[10_000], times[1_000_000]
    return [
        Figure(
            f"{what}: 1 M events vs 10 k",
            large[what] / small[what],
            1.5,
            at_least=False,
            detail=f"{large[what] * 1e3:.2f} ms against {small[what] * 1e3:.2f} ms",
        )
        for what in small
    ]


def dead(connection: psycopg.Connection) -> None:
    for _ in range(50):
        rows = connection.execute(
            "select event_id, last_error from penstock.delivery where stream = 'orders' and group_name = 'fraud' "
            "and state = 'DEAD'"
        ).fetchall()
        assert len(rows) == 10


def event(connection: psycopg.Connection, event_id: object) -> None:
    for _ in range(50):
        rows = connection.execute("select * from penstock.delivery where event_id = %s", (event_id,)).fetchall()
        assert len(rows) == 1

"""Looking at a long log must cost what looking at a short one costs."""

from __future__ import annotations

from functools import partial

import psycopg

import penstock
from benchmarks.claiming import drain, fill
from benchmarks.measuring import Figure, best
from tests.support.postgres_server import PostgresServer

LOOKS = {
    "PENDING of a drained group": "state = 'PENDING'",
    "CLAIMED": "state = 'CLAIMED'",
    "newest 10 PUBLISHED": "state = 'PUBLISHED' order by \"offset\" desc limit 10",
}


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
    for count in (20_000, 2_000_000):
        url = server.create_database()
        with penstock.open(url) as log, psycopg.connect(url, autocommit=True) as connection:
            one = prepare(log, connection, count)
            times[count] = {
                "state = 'DEAD' on the view": best(partial(dead, connection), times=15),
                "one event's deliveries": best(partial(event, connection, one), times=15),
                "stats()": best(log.stats, times=15),
                **{
                    f"{name} on the view": best(partial(look, connection, where), times=15)
                    for name, where in LOOKS.items()
                },
                "log.deliveries(limit=20)": best(partial(page, log), times=15),
            }
    small, large = times[20_000], times[2_000_000]
    return [
        Figure(
            f"{what}: 2 M events vs 20 k",
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
        rows = connection.execute("select * from penstock.deliveries_of(%s)", (event_id,)).fetchall()
        assert len(rows) == 1


def look(connection: psycopg.Connection, where: str) -> None:
    for _ in range(20):
        query = f"select * from penstock.delivery where stream = 'orders' and group_name = 'fraud' and {where}"
        connection.execute(query).fetchall()


def page(log: penstock.Log) -> None:
    for _ in range(10):
        assert len(log.deliveries("orders", "fraud", limit=20)) == 20

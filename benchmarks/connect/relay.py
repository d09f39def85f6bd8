"""A relay against the client library's own pipelined send of the same bytes from a plain loop."""

from __future__ import annotations

import time
from itertools import count
from typing import Any

import psycopg

import penstock
from benchmarks.claiming import fill
from benchmarks.connect.targets import ALL, Target
from benchmarks.measuring import Figure, overall, seconds
from penstock.declare.groups import declare
from penstock.declare.relay import Relay
from penstock.engine.local.engine import LocalEngine
from tests.support.postgres_server import PostgresServer


class Warm:
    """A publisher that stays connected between turns, as the client of the plain loop does."""

    def __init__(self, publisher: Any) -> None:
        self.publish = publisher.publish
        self.topic, self.batch, self.target = publisher.topic, publisher.batch, publisher.target


TURNS = 5
EVENTS = 90_000  # those of a target are the last ones
_numbers = count()


def run(server: PostgresServer) -> list[Figure]:
    url = server.create_database()
    figures = []
    with penstock.open(url) as log, psycopg.connect(url, autocommit=True) as connection:
        fill(log, "orders", EVENTS, 10_000)
        connection.execute("vacuum analyze")
        for target in ALL:
            with target() as one:
                figures.append(compare(log, connection, one))
                one.publisher.close()
    return figures


def compare(log: penstock.Log, connection: psycopg.Connection[Any], target: Target) -> Figure:
    """Plain loop and relay by turns; the first turn of each warms up."""
    target = target._replace(publisher=Warm(target.publisher))
    relay = Relay(target.publisher)
    events = log.read("orders", after=EVENTS - target.events, limit=target.events)
    messages = [message for event in events if (message := relay.message(event)) is not None]
    plain, ours = [], []
    for turn in range(TURNS + 1):
        taken = seconds(lambda: target.plain(messages))
        rate = relayed(log, connection, target)
        if turn:
            plain.append(len(messages) / taken)
            ours.append(rate)
    ratio = overall(ours) / overall(plain)
    detail = f"{overall(ours):,.0f} events/s against {overall(plain):,.0f}"
    return Figure(f"relay to {target.name} vs its client's own loop", ratio, target.wanted, detail=detail)


def relayed(log: penstock.Log, connection: psycopg.Connection[Any], target: Target) -> float:
    """Events a second of a new group, from its first claim to its last settle."""
    group = f"g{next(_numbers)}"
    app = penstock.App(name="bench")
    app.publish("orders", group=group, publisher=target.publisher, start=EVENTS - target.events)
    (subscription,) = app.subscriptions
    declare(log, subscription, "bench")
    log.pause("orders", group)
    engine = LocalEngine(log, [subscription])
    engine.start()
    while not engine.idle:
        time.sleep(0.01)
    log.resume("orders", group)
    while published(connection, group)[0] < target.events:
        time.sleep(0.05)
    engine.stop()
    engine.wait()
    done, taken = published(connection, group)
    return done / taken


def published(connection: psycopg.Connection[Any], group: str) -> tuple[int, float]:
    """How many events a group has published, and in how many seconds."""
    row = connection.execute(
        "select coalesce(sum(l.published), 0)::int, "
        "coalesce(extract(epoch from max(l.ended_at) - min(l.claimed_at)), 1)::float8 "
        "from penstock.leases l join penstock.groups g using (group_id) where g.group_name = %s and l.published > 0",
        (group,),
    ).fetchone()
    assert row is not None
    return row

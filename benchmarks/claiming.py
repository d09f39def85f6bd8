"""Claim, read and settle against reading alone, and against the queue people write by hand."""

from __future__ import annotations

import psycopg

import penstock
from benchmarks.appending import orders
from benchmarks.measuring import Figure, in_turn, seconds
from tests.support.postgres_server import PostgresServer

EVENTS = 200_000
LEASE = 10_000
QUEUE = 20_000


def fill(log: penstock.Log, stream: str, count: int) -> None:
    for _ in range(count // LEASE):
        log.append_many(stream, orders(LEASE))


def drain(log: penstock.Log, stream: str, group: str, limit: int = LEASE) -> int:
    """Claim, read and settle until nothing is left."""
    handled = 0
    while (lease := log.claim(stream, group, limit=limit, claimed_by="bench")) is not None:
        handled += len(lease.events)
        lease.settle()
    return handled


def run(server: PostgresServer) -> list[Figure]:
    url = server.create_database()
    with penstock.open(url) as log, psycopg.connect(url) as connection:
        fill(log, "orders", EVENTS)
        connection.autocommit = True
        connection.execute("vacuum analyze")
        connection.autocommit = False
        return [*against_select(log, connection), against_queue(log, connection), *groups(log)]


def against_select(log: penstock.Log, connection: psycopg.Connection) -> list[Figure]:
    """The same events, read by ranges of the same size and columns, with nothing around it."""
    numbers = iter(range(1000))
    select = (
        'select "offset", event_id, event_type, payload, content_type, headers, metadata, partition_key, ordering_key, '
        "available_at, created_at from penstock.events "
        'where stream = \'orders\' and "offset" > %s and "offset" <= %s order by "offset"'
    )

    def bare() -> None:
        with connection.cursor(binary=True) as cursor:
            for after in range(0, EVENTS, LEASE):
                assert len(cursor.execute(select, (after, after + LEASE), prepare=False).fetchall()) == LEASE
        connection.rollback()

    def ours(**options: object) -> None:
        group = f"g{next(numbers)}"
        log.create_group("orders", group, **options)  # type: ignore[arg-type]
        assert drain(log, "orders", group) == EVENTS

    selected, claimed = in_turn(bare, ours, times=3)
    one_lane, laned = in_turn(ours, lambda: ours(keyed=True, lanes=8), times=3)
    detail = f"{EVENTS / claimed:,.0f} events/s against {EVENTS / selected:,.0f}"
    lanes = f"{EVENTS / laned:,.0f} events/s against {EVENTS / one_lane:,.0f}"
    return [
        Figure("claim + read + settle in leases of 10 k vs the bare SELECT", selected / claimed, 0.7, detail=detail),
        Figure("the same with 8 lanes vs one lane", one_lane / laned, 0.5, detail=lanes),
    ]


def against_queue(log: penstock.Log, connection: psycopg.Connection) -> Figure:
    """A textbook queue: UPDATE … SKIP LOCKED to take one, UPDATE to finish it, a commit each."""
    connection.execute(
        "create table queue (id bigserial primary key, state text not null default 'ready', payload bytea not null)"
    )
    connection.execute("create index on queue (id) where state = 'ready'")
    connection.execute(
        "insert into queue (payload) select payload from penstock.events where stream = 'orders' limit %s", (QUEUE,)
    )
    connection.commit()
    take = (
        "update queue set state = 'taken' where id = (select id from queue where state = 'ready' order by id "
        "for update skip locked limit 1) returning id, payload"
    )

    def by_hand() -> None:
        while (row := connection.execute(take).fetchone()) is not None:
            connection.commit()
            connection.execute("update queue set state = 'done' where id = %s", (row[0],))
            connection.commit()
        connection.rollback()

    log.create_group("orders", "queue")
    hand = seconds(by_hand) / QUEUE
    ours = seconds(lambda: drain(log, "orders", "queue")) / EVENTS
    detail = f"{1 / ours:,.0f} events/s against {1 / hand:,.0f}"
    return Figure("the same vs a textbook row-by-row queue", hand / ours, 10, detail=detail)


def groups(log: penstock.Log) -> list[Figure]:
    """Ten groups on one log: every group costs what it costs, no more."""
    for number in range(10):
        log.create_group("orders", f"ten-{number}")
    log.create_group("orders", "alone")

    def ten() -> None:
        for number in range(10):
            drain(log, "orders", f"ten-{number}")

    one = EVENTS / seconds(lambda: drain(log, "orders", "alone"))
    total = 10 * EVENTS / seconds(ten)
    detail = f"{total:,.0f} deliveries/s against {one:,.0f}"
    return [Figure("ten groups on one log, deliveries/s, vs one group", total / one, 0.9, detail=detail)]

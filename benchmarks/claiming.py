"""Claim, read and settle against reading alone, and against a queue of rows."""

from __future__ import annotations

import psycopg

import penstock
from benchmarks.appending import orders
from benchmarks.measuring import Figure, in_turn, overall, seconds
from tests.support.postgres_server import PostgresServer

EVENTS = 200_000
LEASE = 10_000
QUEUE_BATCH = 1_000


def fill(log: penstock.Log, stream: str, count: int, batch: int = LEASE) -> None:
    for _ in range(count // batch):
        log.append_many(stream, orders(batch))


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
    """A good queue of rows: one UPDATE … SKIP LOCKED takes a thousand, one DELETE finishes them, a commit each."""
    connection.execute(
        "create table queue (id bigserial primary key, state text not null default 'ready', payload bytea not null)"
    )
    connection.execute("create index on queue (id) where state = 'ready'")
    fill_queue = "insert into queue (payload) select payload from penstock.events where stream = 'orders' limit %s"
    take = (
        "update queue set state = 'taken' where id = any(array(select id from queue where state = 'ready' order by id "
        "for update skip locked limit %s)) returning id, payload"
    )
    numbers = iter(range(1000))

    def by_rows() -> None:
        while rows := connection.execute(take, (QUEUE_BATCH,)).fetchall():
            connection.commit()
            connection.execute("delete from queue where id = any(%s)", ([row[0] for row in rows],))
            connection.commit()
        connection.rollback()

    def ours() -> None:
        group = f"queue-{next(numbers)}"
        log.create_group("orders", group)
        assert drain(log, "orders", group) == EVENTS

    by_row, by_range = [], []
    for _ in range(3):
        connection.execute(fill_queue, (EVENTS,))
        connection.commit()
        by_row.append(EVENTS / seconds(by_rows))
        by_range.append(EVENTS / seconds(ours))
    hand, log_rate = overall(by_row), overall(by_range)
    detail = f"{log_rate:,.0f} events/s against {hand:,.0f}"
    what = "the same vs a queue that takes and deletes rows in batches of 1,000"
    return Figure(what, log_rate / hand, 3, detail=detail)


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

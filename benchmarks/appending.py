"""What an append costs, held against the database doing the same without us."""

from __future__ import annotations

import psycopg

import penstock
from benchmarks.measuring import Figure, in_turn
from penstock.core.codec import encode_payload
from penstock.core.lanes import bucket_of
from penstock.log import new_events
from penstock.log.ids import uuid7
from penstock.stores.postgres.bulk import copy_chunks
from tests.support.postgres_server import PostgresServer

BATCH = 10_000
ORDER = {"id": 123456, "customer": "c-4242", "amount": 12.5, "currency": "EUR", "note": "x" * 110}  # ~200 bytes


def orders(count: int) -> list[dict[str, object]]:
    """Events with a 200-byte JSON payload."""
    return [
        {"payload": {**ORDER, "id": n}, "type": "order.created", "ordering_key": f"c-{n % 1000}"} for n in range(count)
    ]


def run(server: PostgresServer) -> list[Figure]:
    url = server.create_database()
    with penstock.open(url) as log, psycopg.connect(url) as connection:
        return [bulk(log, connection), single(log, connection)]


def bulk(log: penstock.Log, connection: psycopg.Connection) -> Figure:
    """append_many against a COPY of rows that are laid out already."""
    events = orders(BATCH)
    ready = [b"".join(copy_chunks(new_events.many("raw", events)[0])) for _ in range(8)]
    copy = log.store.blocks["append.copy"]

    def raw() -> None:
        with connection.cursor() as cursor, cursor.copy(copy) as stream:
            stream.write(ready.pop())
        connection.commit()

    raw()
    log.append_many("orders", events)
    bare, ours = in_turn(raw, lambda: log.append_many("orders", events), times=7)
    detail = f"{BATCH / ours:,.0f} events/s against {BATCH / bare:,.0f}"
    return Figure("append_many, batches of 10 k, vs a raw COPY of ready-made rows", bare / ours, 0.7, detail=detail)


def single(log: penstock.Log, connection: psycopg.Connection) -> Figure:
    """One append in the caller's transaction against the plain INSERT."""
    payload = ORDER
    ready = encode_payload(payload, None)[0]
    insert = (
        "insert into penstock.events (stream, event_id, event_type, payload, ordering_key, bucket) "
        'values (%s, %s, %s, %s, %s, %s) returning "offset"'
    )
    bucket = bucket_of("c-42")
    count = 1_000

    def plain() -> None:
        for _ in range(count):
            row = ("raw", uuid7(), "order.created", ready, "c-42", bucket)
            connection.execute(insert, row, prepare=False).fetchone()
            connection.commit()

    def ours() -> None:
        for _ in range(count):
            log.append("orders", payload, type="order.created", ordering_key="c-42", connection=connection)
            connection.commit()

    plain_seconds, our_seconds = in_turn(plain, ours, times=5)
    detail = f"{our_seconds / count * 1e6:.0f} µs against {plain_seconds / count * 1e6:.0f} µs, commit included"
    return Figure(
        "one append in the caller's transaction vs a plain INSERT", plain_seconds / our_seconds, 0.8, detail=detail
    )

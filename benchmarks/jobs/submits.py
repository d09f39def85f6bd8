"""What a submit costs, held against the database doing the same without us."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable

import psycopg

import penstock
from benchmarks.appending import BATCH, ORDER
from benchmarks.measuring import Figure, in_turn
from penstock.core.codec import encode_payload
from penstock.log import new_events
from penstock.log.ids import uuid7
from penstock.stores.postgres.bulk import copy_chunks
from tests.support.postgres_server import PostgresServer

STREAM = "jobs:default:0:raw"
SINGLES = 3_000


def run(server: PostgresServer) -> list[Figure]:
    url = server.create_database()
    with penstock.open(url) as log, psycopg.connect(url) as connection:
        return [bulk(log, connection), single(log, connection)]


def bulk(log: penstock.Log, connection: psycopg.Connection) -> Figure:
    """submit_many against a COPY of rows that are laid out already."""
    jobs = [{"type": "order", "payload": {**ORDER, "id": n}} for n in range(BATCH)]
    rows = [{"payload": job["payload"], "type": "raw"} for job in jobs]
    ready = [b"".join(copy_chunks(new_events.many(STREAM, rows, job=True)[0])) for _ in range(8)]
    copy = log.store.blocks["append.copy"]

    def raw() -> None:
        with connection.cursor() as cursor, cursor.copy(copy) as stream:
            stream.write(ready.pop())
        connection.commit()

    raw()
    log.submit_many(jobs)
    bare, ours = in_turn(raw, lambda: log.submit_many(jobs), times=7)
    detail = f"{BATCH / ours:,.0f} jobs/s against {BATCH / bare:,.0f}"
    return Figure("submit_many, batches of 10 k, vs a raw COPY of ready-made rows", bare / ours, 0.7, detail=detail)


def single(log: penstock.Log, connection: psycopg.Connection) -> Figure:
    """One submit in the caller's transaction against the plain INSERT."""
    ready = encode_payload(ORDER, None)[0]
    insert = (
        'insert into penstock.events (stream, event_id, event_type, payload) values (%s, %s, %s, %s) returning "offset"'
    )

    def plain() -> None:
        connection.execute(insert, (STREAM, uuid7(), "raw", ready), prepare=False).fetchone()
        connection.commit()

    def ours() -> None:
        log.submit("order", ORDER, connection=connection)
        connection.commit()

    # One by one, by turns: a disk that hesitates now and then hits both alike.
    gc.collect()
    pairs = [(_seconds(plain), _seconds(ours)) for _ in range(SINGLES)]
    bare, our = (statistics.median(one) for one in zip(*pairs, strict=True))
    detail = f"{our * 1e6:.0f} µs against {bare * 1e6:.0f} µs, commit included"
    return Figure("one submit in the caller's transaction vs a plain INSERT", bare / our, 0.8, detail=detail)


def _seconds(work: Callable[[], None]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin

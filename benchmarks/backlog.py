"""What a claim costs with much and with little behind it: filters, failures, rows far ahead."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import psycopg

import penstock
from benchmarks.measuring import Figure
from tests.support.postgres_server import PostgresServer

FEW = 20_000
MANY = 2_000_000
LIMIT = 100
TIMES = 50
SINGLES = 500
KEYS = 997
LATER = penstock.Retry(max_attempts=50, base_seconds=3600, cap_seconds=3600, jitter=0)

Prepare = Callable[[penstock.Log, str], None]


def run(server: PostgresServer) -> list[Figure]:
    url = server.create_database()
    with penstock.open(url) as log, psycopg.connect(url, autocommit=True) as connection:
        for stream, count in (("few", FEW), ("many", MANY)):
            fill(connection, stream, count)
        connection.execute("vacuum analyze")
        return [
            compare(log, "some", "type filter, 1 in 50", {"types": ["some"]}),
            compare(log, "rare", "type filter, 1 in 100 k", {"types": ["rare"]}),
            compare(log, "ordered", "ordered, after 100 failures", {"ordering": "key", "retry": LATER}, fail_a_hundred),
            compare(log, "far", "unordered, rows far ahead", {}, kill_the_last),
            singles(log, connection),
        ]


def fill(connection: psycopg.Connection[Any], stream: str, count: int) -> None:
    """Events made in the server: of three types, and of many keys."""
    connection.execute(
        """
        insert into penstock.events (stream, event_id, event_type, payload, ordering_key, bucket)
        select %s, gen_random_uuid(),
               case when mod(n, 100000) = 500 then 'rare' when mod(n, 50) = 0 then 'some' else 'other' end,
               convert_to('{"id": ' || n || ', "text": "' || repeat('x', 160) || '"}', 'UTF8'),
               key, get_byte(sha256(convert_to(key, 'UTF8')), 0)
          from generate_series(1, %s) n cross join lateral (select 'k' || mod(n, %s) as key) k""",
        (stream, count, KEYS),
    )


def fail_a_hundred(log: penstock.Log, stream: str) -> None:
    failed = 0
    while failed < 100:
        lease = log.claim(stream, "ordered", limit=LIMIT, claimed_by="bench")
        assert lease is not None
        bad = {event.event_id: "no" for event in lease.events[:7]}
        failed += lease.settle(failed=bad).failed


def kill_the_last(log: penstock.Log, stream: str) -> None:
    first = log.read(stream, limit=1)[0].offset
    (last,) = log.read(stream, after=first + (FEW if stream == "few" else MANY) - 10, limit=1)
    log.kill(stream, "far", event_ids=[last.event_id], reason="far ahead")


def compare(
    log: penstock.Log, group: str, what: str, options: dict[str, Any], prepare: Prepare | None = None
) -> Figure:
    """The median of many claims with much waiting against the median with little; what was claimed is given back."""
    taken = {}
    for stream in ("few", "many"):
        log.create_group(stream, group, **options)
        if prepare is not None:
            prepare(log, stream)
    for stream in ("few", "many"):
        taken[stream] = statistics.median(claim_seconds(log, stream, group) for _ in range(TIMES))
    detail = f"{taken['many'] * 1e3:.2f} ms against {taken['few'] * 1e3:.2f} ms"
    title = f"claim, {what}: {MANY // 1_000_000} M waiting vs {FEW // 1_000} k"
    return Figure(title, taken["many"] / taken["few"], 1.5, at_least=False, detail=detail)


def claim_seconds(log: penstock.Log, stream: str, group: str) -> float:
    begin = time.perf_counter()
    lease = log.claim(stream, group, limit=LIMIT, claimed_by="bench")
    taken = time.perf_counter() - begin
    assert lease is not None
    lease.release()
    return taken


def singles(log: penstock.Log, connection: psycopg.Connection[Any]) -> Figure:
    """One event a lease, one worker, against the least that such bookkeeping takes: two small transactions."""
    log.create_group("many", "singles")
    connection.execute("create table bookkeeping (id bigint generated always as identity primary key, what text)")
    connection.autocommit = False

    def inserts() -> None:
        for what in ("claimed", "settled"):
            connection.execute("insert into bookkeeping (what) values (%s)", (what,))
            connection.commit()

    def ours() -> None:
        lease = log.claim("many", "singles", limit=1, claimed_by="bench")
        assert lease is not None
        lease.settle()

    bare, claimed = [], []
    for _ in range(SINGLES):  # by turns: whatever else the machine does happens to both
        for work, times in ((inserts, bare), (ours, claimed)):
            begin = time.perf_counter()
            work()
            times.append(time.perf_counter() - begin)
    connection.autocommit = True
    one, other = statistics.median(bare), statistics.median(claimed)
    detail = f"{1 / other:,.0f} a second against {1 / one:,.0f}"
    return Figure("claim + settle of single events vs two one-row INSERT transactions", one / other, 0.5, detail=detail)

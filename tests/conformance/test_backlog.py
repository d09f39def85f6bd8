"""A claim costs the same however long the backlog is: rows read and plans."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import penstock
from penstock.core import limits
from tests.support.postgres_server import PostgresServer
from tests.support.query_plans import plan_nodes

pytestmark = pytest.mark.timeout(400)  # filling the large log takes most of it

EVENTS = 300_000
FAR = EVENTS - 1_000
LIMIT = 100
NEVER = penstock.Retry(max_attempts=50, base_seconds=3600, cap_seconds=3600, jitter=0)


@pytest.fixture(scope="module", params=["young", "analyzed"])
def backlog(request: pytest.FixtureRequest, postgres: PostgresServer) -> Iterator[str]:
    """A backlog in a young log: freshly loaded, never vacuumed, without statistics; and the same with statistics."""
    url = postgres.create_database()
    with penstock.open(url) as log, psycopg.connect(url, autocommit=True) as sql:
        for table in ("events", "deliveries"):  # on a slow machine autovacuum would come in between
            sql.execute(f"alter table penstock.{table} set (autovacuum_enabled = off)")
        sql.execute(
            """
            insert into penstock.events (stream, event_id, event_type, payload, ordering_key, bucket)
            select 'orders', gen_random_uuid(),
                   case when mod(n, 100000) = 500 then 'rare' when mod(n, 50) = 0 then 'some' else 'other' end, '{}',
                   'k' || mod(n, 997), get_byte(sha256(convert_to('k' || mod(n, 997), 'UTF8')), 0)
              from generate_series(1, %s) n""",
            (EVENTS,),
        )
        log.create_group("orders", "some", types=["some"])
        log.create_group("orders", "rare", types=["rare"])
        log.create_group("orders", "some-lanes", types=["some"], keyed=True)
        for name, options in (
            ("far", {}),
            ("far-some", {"types": ["some"]}),
            ("failed", {"ordering": "key"}),
            ("failed-some", {"ordering": "key", "types": ["some"]}),
            ("buried", {"ordering": "key"}),
            ("halted", {"ordering": "key", "on_dead": "halt"}),
        ):
            log.create_group("orders", name, retry=NEVER, **options)  # type: ignore[arg-type]
        for name in ("far", "far-some"):
            wanted = sql.execute(
                "select event_id from penstock.events where \"offset\" > %s and event_type = 'some' limit 1", (FAR,)
            ).fetchone()
            assert wanted is not None
            log.kill("orders", name, event_ids=[wanted[0]], reason="far ahead")
        for name in ("failed", "failed-some"):
            for _ in range(16):  # two leases per lane; seven events of each fail
                lease = log.claim("orders", name, limit=LIMIT, claimed_by="w")
                assert lease is not None
                lease.settle(failed={event.event_id: "no" for event in lease.events[:7]})
        bury(sql, "buried", 80_000, "k' || (1000 + mod(n, 100))")
        bury(sql, "halted", 80_000, "k' || (1000 + mod(n, 100))")
        if request.param == "analyzed":
            sql.execute("analyze")
        yield url


def bury(sql: psycopg.Connection[Any], group: str, count: int, key: str) -> None:
    """Insert old dead letters, of keys that do not occur again."""
    sql.execute("alter table penstock.deliveries disable trigger user")
    sql.execute(
        f"""
        insert into penstock.deliveries (group_id, "offset", stream, group_name, event_id, event_type, ordering_key,
                                         bucket, in_order, state, attempts, dead_at)
        select g.group_id, -n, 'orders', g.group_name, gen_random_uuid(), 'other', '{key}, mod(n, 256), true, 'DEAD', 1,
               now()
          from generate_series(1, %s) n, penstock.groups g where g.group_name = %s""",  # type: ignore[arg-type]
        (count, group),
    )
    sql.execute("alter table penstock.deliveries enable trigger user")


def touched(url: str, work: Callable[[penstock.Log], object]) -> dict[str, int]:
    """Rows and index entries that the server reads for some work, by table; a session reports them when it ends."""

    def read() -> dict[str, int]:
        with psycopg.connect(url, autocommit=True) as sql:
            found = sql.execute(
                """select t.relname, t.seq_tup_read + coalesce(sum(i.idx_tup_read), 0)
                     from pg_stat_user_tables t left join pg_stat_user_indexes i using (relid)
                    where t.schemaname = 'penstock' group by t.relname, t.seq_tup_read"""
            ).fetchall()
        return {name: int(count) for name, count in found}

    with penstock.open(url) as log:  # do not count what opening reads
        log.groups("orders")
    before = read()
    with penstock.open(url) as log:
        work(log)
    after = read()
    return {name: count - before[name] for name, count in after.items()}


def claim(group: str) -> Callable[[penstock.Log], object]:
    def once(log: penstock.Log) -> None:
        lease = log.claim("orders", group, limit=LIMIT, claimed_by="w")
        assert lease is not None and len(lease) >= 1
        lease.release()

    return once


@pytest.mark.shows("K36")
@pytest.mark.parametrize(
    ("group", "events", "rows"),
    [
        ("some", 50 * LIMIT + 1_000, 10),
        ("rare", 2 * limits.SCAN_FILTERED + 1_000, 10),
        ("some-lanes", 4 * limits.SCAN_FILTERED + 1_000, 10),
        ("far", 1_000, 10),
        ("far-some", 50 * LIMIT + 1_000, 10),
        ("failed", 8_000, 1_000),
        ("failed-some", 80_000, 1_000),
        ("buried", 4_000, 1_000),
        ("halted", 8_000, 80_000 // 8),
    ],
)
def test_a_claim_reads_only_what_it_hands_out(backlog: str, group: str, events: int, rows: int) -> None:
    """Filters, failures, distant rows and dead letters: none of them makes a claim read the backlog."""
    found = touched(backlog, claim(group))
    assert found["events"] <= events, found
    assert found["deliveries"] <= rows, found


@pytest.mark.shows("K36")
@pytest.mark.parametrize("block", ["claim.plain_range", "claim.careful_range"])
def test_no_plan_reads_or_sorts_the_backlog(backlog: str, block: str) -> None:
    with penstock.open(backlog) as log, psycopg.connect(backlog) as sql:
        (group,) = [one for one in log.groups("orders") if one.group_name == "failed-some"]
        sql.execute("select * from penstock.claim_look('orders', 'failed-some', null)")  # prefer indexes from here on
        row = sql.execute(
            "explain (analyze, buffers, format json) " + log.store.blocks[block],  # type: ignore[arg-type]
            {
                "stream": "orders",
                "group_id": group.group_id,
                "low": 5_000,
                "high": EVENTS,
                "scan": 10_000,
                "most": LIMIT,
                "first_bucket": 0,
                "last_bucket": 31,
                "binding": group.spans[0].binding,
                "type_regex": group.spans[0].type_regex,
                "headers": None,
                "now": group.created_at,
                "ordered": True,
                "halts": False,
                "holes": limits.HOLES_PER_LEASE,
            },
            prepare=False,
        ).fetchone()
    assert row is not None
    top = (row[0] if isinstance(row[0], list) else json.loads(row[0]))[0]["Plan"]
    plans = list(plan_nodes(top))
    kinds = {one["Node Type"] for one in plans if one.get("Relation Name") == "events"}
    assert kinds <= {"Index Scan", "Index Only Scan"}, kinds
    assert max(one["Actual Rows"] for one in plans) <= 10_000
    assert top["Shared Hit Blocks"] + top["Shared Read Blocks"] < 3_000


PARAMETERS = (
    *("stream", "group_id", "low", "high", "most", "scan", "reach", "holes", "first_bucket", "last_bucket"),
    *("binding", "headers", "type_regex", "now", "ordered", "halts", "ceiling"),
)
BLOCKS = {
    "claim.whole_range": {"events": "penstock_events_stream"},
    "claim.lane_range": {"events": "penstock_events_stream"},
    "claim.plain_range": {"events": "penstock_events_stream"},
    "claim.careful_range": {"events": "penstock_events_stream"},
    "claim.ordered_rows": {"deliveries": "penstock_deliveries_turn"},
    "claim.blocked": {"deliveries": "penstock_deliveries_turn"},
    "claim.due_rows": {"deliveries": "penstock_deliveries_due"},
}


@pytest.mark.shows("K36")
@pytest.mark.parametrize("block", BLOCKS)
def test_sqlite_claims_from_an_index(tmp_path: Path, block: str) -> None:
    """An index gives events in order, so reading stops at the limit; dead letters have an index of their own."""
    path = tmp_path / "log.db"
    with penstock.open(f"sqlite:///{path}") as log, sqlite3.connect(path) as sql:
        text = log.store.blocks[block]
        plan = [str(row[3]) for row in sql.execute("explain query plan " + text, dict.fromkeys(PARAMETERS, 1))]
    for table, index in BLOCKS[block].items():
        visits = [step for step in plan if f"penstock_{table}" in step]
        assert any(index in step for step in visits), plan
        assert not any(step.startswith("SCAN") for step in visits), plan
    if "events" in BLOCKS[block]:
        before_the_limit = plan[: next(n for n, step in enumerate(plan) if "penstock_events_stream" in step) + 1]
        assert not any("B-TREE FOR ORDER BY" in step for step in before_the_limit), plan

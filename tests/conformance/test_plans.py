"""Query plans on a log of a million events."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import penstock
from penstock.core.lease import DEATHS
from penstock.log import newest_events, problems, standing
from tests.support.log_steps import claim_and_settle_all
from tests.support.postgres_server import PostgresServer
from tests.support.query_plans import plan_nodes, read_rows, scans

pytestmark = pytest.mark.timeout(400)  # filling the large log takes most of it

EVENTS = 1_000_000


@pytest.fixture(scope="module")
def million(postgres: PostgresServer) -> Iterator[tuple[penstock.Log, psycopg.Connection[Any]]]:
    """A million events: half of them handled in 5,000 leases, some dead, some pending."""
    url = postgres.create_database()
    with penstock.open(url) as log, psycopg.connect(url, autocommit=True) as sql:
        sql.execute(
            """
            insert into penstock.events (stream, event_id, event_type, payload, ordering_key, bucket)
            select case when mod(n, 10) = 0 then 'other' else 'orders' end, gen_random_uuid(), 'order.' || mod(n, 5),
                   '{}', 'k' || mod(n, 1000), get_byte(sha256(convert_to('k' || mod(n, 1000), 'UTF8')), 0)
              from generate_series(1, %s) n""",
            (EVENTS,),
        )
        for group, ordering in (("g", None), ("ordered", "key")):
            log.create_group("orders", group, ordering=ordering)
            for number in range(25):
                lease = log.claim("orders", group, limit=20_000, claimed_by="w")
                assert lease is not None
                bad = {event.event_id: "no" for event in lease.events[:40]}
                lease.settle(dead=bad if number % 2 else {}, failed={} if number % 2 else bad)
        trickled = log.create_group("orders", "trickled")
        sql.execute(
            "alter table penstock.leases disable trigger born_open"
        )  # a hundred thousand real claims would take too long
        sql.execute(
            """insert into penstock.leases (group_id, lane, lanes, binding, token, claimed_by, claimed_at, expires_at,
                                            attempts, members, low, high, fresh, total, outcome, upto, ended_at)
               select %s, 0, 1, %s, n, 'w', now(), now(), 1, 1, n - 1, n, true, n, 'settled', n, now()
                 from generate_series(1, 100000) n""",
            (trickled.group_id, trickled.spans[0].binding),
        )
        sql.execute("alter table penstock.leases enable always trigger born_open")
        sql.execute("vacuum analyze")
        yield log, sql


class Watched:
    """Runs one operation and keeps the plan of every statement."""

    def __init__(self, log: penstock.Log, sql: psycopg.Connection[Any]) -> None:
        self.log, self.sql = log, sql

    def explain(self, block: str, **params: Any) -> list[dict[str, Any]]:
        text = "explain (analyze, buffers, format json) " + self.log.store.blocks[block]
        row = self.sql.execute(text, params, prepare=False).fetchone()  # type: ignore[arg-type]
        assert row is not None
        found = row[0] if isinstance(row[0], list) else json.loads(row[0])
        return list(plan_nodes(found[0]["Plan"]))


@pytest.mark.shows("K30")
def test_a_claim_reads_no_more_than_its_share(million: tuple[penstock.Log, psycopg.Connection[Any]]) -> None:
    log, sql = million
    watched = Watched(log, sql)
    group = next(one for one in log.groups("orders") if one.group_name == "trickled")
    cursor = watched.explain("claim.lanes", group_id=group.group_id, lanes=1)
    assert ("Seq Scan", "leases") not in scans(cursor) and read_rows(cursor, "leases") <= 2
    for low in (0, 900_000):
        whole = watched.explain("claim.whole_range", stream="orders", low=low, high=EVENTS, most=100)
        assert scans(whole) == {("Index Only Scan", "events")} and read_rows(whole, "events") <= 100
    due = watched.explain(
        "claim.due_rows",
        group_id=group.group_id,
        now=log.read("orders", limit=1)[0].created_at,
        first_bucket=0,
        last_bucket=255,
        most=100,
    )
    assert ("Seq Scan", "deliveries") not in scans(due)
    deaths = watched.explain("guard.deaths", group_id=group.group_id, codes=sorted(DEATHS), most=10)
    assert ("Seq Scan", "attempt_log") not in scans(deaths)
    odd = watched.explain(
        "claim.exceptions",
        group_id=group.group_id,
        stream="orders",
        low=900_000,
        high=EVENTS,
        now=log.read("orders", limit=1)[0].created_at,
        ordered=False,
        scan=50_000,
        first_bucket=0,
        last_bucket=255,
        halts=False,
    )
    assert not {kind for kind, _ in scans(odd)} & {"Seq Scan"} and read_rows(odd, "events") == 0


@pytest.mark.shows("K30")
def test_finding_a_quiet_stream_reads_no_other_streams(million: tuple[penstock.Log, psycopg.Connection[Any]]) -> None:
    """A stream that was busy and is now silent: the range holds events of other streams only."""
    log, sql = million
    quiet = Watched(log, sql).explain("claim.whole_range", stream="silent", low=0, high=EVENTS, most=50_000)
    assert read_rows(quiet, "events") == 0 and scans(quiet) == {("Index Only Scan", "events")}
    statistics = sql.execute(
        "select count(*) from pg_stats where tablename = 'events' and attname = 'stream'"
    ).fetchone()
    assert statistics == (0,), "with statistics the planner may scan the primary key"


@pytest.mark.shows("K30")
def test_a_lane_is_claimed_from_the_index_alone(million: tuple[penstock.Log, psycopg.Connection[Any]]) -> None:
    log, sql = million
    plan = Watched(log, sql).explain(
        "claim.lane_range",
        stream="orders",
        low=600_000,
        high=EVENTS,
        scan=50_000,
        reach=50_000,
        most=1_000,
        first_bucket=0,
        last_bucket=31,
    )
    assert scans(plan) == {("Index Only Scan", "events")} and read_rows(plan, "events") <= 60_000


@pytest.mark.shows("K30")
def test_settle_and_lookups_use_their_index(million: tuple[penstock.Log, psycopg.Connection[Any]]) -> None:
    log, sql = million
    watched = Watched(log, sql)
    for block, params in (
        ("lease.find", {"id": 7}),
        ("inspect.event", {"stream": "orders", "event_id": log.read("orders", limit=1)[0].event_id, "offset": None}),
    ):
        plan = watched.explain(block, **params)
        kinds = {kind for kind, table in scans(plan) if table in ("events", "leases")}
        assert "Seq Scan" not in kinds or read_rows(plan, "leases") < 200, (block, kinds)


@pytest.mark.shows("K33")
def test_dead_letters_on_the_view_read_only_deliveries(million: tuple[penstock.Log, psycopg.Connection[Any]]) -> None:
    _, sql = million
    for where in ("group_name = 'g' and state = 'DEAD'", "state = 'DEAD' and stream = 'orders'"):
        row = sql.execute(
            f"explain (analyze, format json) select event_id, last_error from penstock.delivery where {where}"  # type: ignore[arg-type]
        ).fetchone()
        assert row is not None
        plan = list(plan_nodes(row[0][0]["Plan"]))
        assert {table for _, table in scans(plan)} == {"deliveries"}


@pytest.mark.shows("K33")
def test_one_events_deliveries_are_found_by_index(million: tuple[penstock.Log, psycopg.Connection[Any]]) -> None:
    log, sql = million
    for offset in (100, 500_001, 999_990):
        event = log.read("orders", after=offset, limit=1)[0]
        row = sql.execute(
            'explain (analyze, format json) select * from penstock.delivery where stream = %s and "offset" = %s',
            ("orders", event.offset),
            prepare=False,
        ).fetchone()
        assert row is not None
        plan = list(plan_nodes(row[0][0]["Plan"]))
        assert ("Seq Scan", "events") not in scans(plan) and read_rows(plan, "events") < 100, scans(plan)
        of = sql.execute("select count(*) from penstock.deliveries_of(%s)", (event.event_id,)).fetchone()
        assert of == (3,), "one row per group"


@pytest.mark.shows("K33")
def test_stats_read_a_tail_of_the_log(million: tuple[penstock.Log, psycopg.Connection[Any]]) -> None:
    log, sql = million
    log.reap()  # updates the running counts
    stats = {one.group: one for one in log.stats().groups}
    wanted = EVENTS * 9 // 10
    dead = sql.execute("select count(*) from penstock.deliveries where group_name = 'g' and state = 'DEAD'").fetchone()
    assert dead == (stats["g"].dead,) and stats["g"].dead > 0
    assert stats["g"].pending == wanted - stats["g"].dead - stats["g"].published == stats["g"].lag
    assert stats["trickled"].published == 100_000 and stats["trickled"].lag == wanted - 100_000
    plan = Watched(log, sql).explain("stats.now", stream=None, upto=log.stats().horizon)
    assert read_rows(plan, "events") <= 10_000, "stats read more than the tail of the log"
    steps = Watched(log, sql).explain("stats.at", streams=["orders"] * 2, offsets=[345_678, 345_700])
    assert 0 < read_rows(steps, "events") <= 20_000, "stats read more than from the nearest step on"


@pytest.mark.shows("O11")
def test_pages_read_no_more_than_they_show(million: tuple[penstock.Log, psycopg.Connection[Any]]) -> None:
    """On a stream of a million events, of which the planner does not know how many there are."""
    log, sql = million
    watched = Watched(log, sql)
    groups = {one.group_name: one for one in log.groups("orders")}
    ordered, trickled = groups["ordered"], groups["trickled"]
    ids = [one.group_id for one in groups.values()]
    now, all_groups = log.clock(), {"stream": None, "group_name": None}
    page = log.newest_events("orders", type="order.1", limit=40)
    looked: dict[str, tuple[dict[str, Any], int]] = {
        "changes.newest": ({}, 0),
        "newest.among": ({"stream": "orders", "low": EVENTS - 6_000, "high": EVENTS, "look": 5_000}, 5_001),
        "newest.events": (newest_events.page_of("orders", EVENTS + 1, EVENTS, "order.1", 40, page.low), 25_000),
        "search.keys": ({"stream": "orders", "key": "no", "look": 2_000, "low": EVENTS - 2_500, "limit": 20}, 5_000),
        "standing.lanes": (standing.lanes_of(ordered), 10),
        "standing.leases": (standing.leases_of(ordered), 0),
        "standing.blocked": (standing.blocked_of(ordered), 0),
        "problems.groups": (problems._bounds(now) | all_groups, 0),
        "problems.rows": ({"most": 10_000} | all_groups, 0),
        "doctor.stuck": ({"now": now}, 0),
        "drain.due_groups": ({"ids": ids, "horizon": EVENTS, "now": now}, 10),
    }
    for block, (params, most) in looked.items():
        plan = watched.explain(block, **params)
        assert read_rows(plan, "events") <= most, (block, read_rows(plan, "events"))
        assert read_rows(plan, "leases") <= 1_000, (block, read_rows(plan, "leases"))
        assert not {("Seq Scan", "events"), ("Seq Scan", "leases")} & scans(plan), block
    assert [one.event_type for one in page.events] == ["order.1"] * 40
    of_one = {"stream": "orders", "group_name": "trickled", "ids": [trickled.group_id]}
    assert read_rows(watched.explain("stats.rows", **of_one), "deliveries") == 0, "it reads rows of other groups"


def test_the_large_log_can_be_drained(million: tuple[penstock.Log, psycopg.Connection[Any]]) -> None:
    log, _ = million
    assert len(claim_and_settle_all(log, group="g", limit=50_000)) > 300_000


@pytest.mark.shows("K37")
def test_a_query_by_state_reads_only_what_it_returns(million: tuple[penstock.Log, psycopg.Connection[Any]]) -> None:
    """However long the log is: a drained group has nothing pending or claimed, and the newest come first."""
    log, sql = million
    claim_and_settle_all(log, group="g", limit=50_000)
    of = "select * from penstock.delivery where stream = 'orders' and group_name = 'g' and state = "
    for query, most in (
        (f"{of} 'PENDING'", 2_000),
        (f"{of} 'CLAIMED'", 100),
        (f"{of} 'PUBLISHED' order by \"offset\" desc limit 10", 100),
        ("select * from penstock.delivery where state = 'CLAIMED'", 100),
    ):
        row = sql.execute(f"explain (analyze, buffers, format json) {query}", prepare=False).fetchone()  # type: ignore[arg-type]
        assert row is not None
        plan = list(plan_nodes(row[0][0]["Plan"]))
        assert read_rows(plan, "events") <= most, (query, read_rows(plan, "events"))
        assert ("Seq Scan", "events") not in scans(plan), query


@pytest.mark.shows("K37")
def test_a_page_of_deliveries_skips_ranges_without_matches(
    million: tuple[penstock.Log, psycopg.Connection[Any]],
) -> None:
    log, _ = million
    log.reap()  # counts the log
    asked: Counter[str] = Counter()
    log.store.hook = lambda when, block: asked.update([block] if when == "before" else [])
    try:
        for filters in ({}, {"state": "PENDING"}, {"state": "CLAIMED"}, {"state": "DEAD"}, {"type": "no.such"}):
            asked.clear()
            found = log.deliveries("orders", "trickled", limit=20, **filters)  # type: ignore[arg-type]
            assert len(found) == (20 if filters in ({}, {"state": "PENDING"}) else 0)
            assert asked["inspect.deliveries"] <= 8, (filters, asked)
        asked.clear()
        assert log.rewind("orders", "trickled", to="beginning", dry_run=True).count == 100_000
        assert asked["settle.count_tail"] == 0, "not counted from the tally"
        noon = log.read("orders", after=EVENTS // 2, limit=1)[0].created_at
        asked.clear()
        assert log.deliveries("orders", "g", since=noon, limit=1)[0].created_at >= noon
        assert asked["group.created_after"] <= 25, "not found by bisection"
    finally:
        log.store.hook = None


@pytest.mark.shows("K33")
def test_a_drained_group_is_known_without_reading_the_log(postgres: PostgresServer) -> None:
    """A young log without statistics: the group's cursor alone must bound the search."""
    url = postgres.create_database()
    with penstock.open(url) as log, psycopg.connect(url, autocommit=True) as sql:
        sql.execute(
            """insert into penstock.events (stream, event_id, event_type, payload)
               select 'orders', gen_random_uuid(), 'order.created', '{}' from generate_series(1, 100000)"""
        )
        sql.execute("vacuum analyze")
        group = log.create_group("orders", "g")
        assert len(claim_and_settle_all(log, group="g", limit=50_000)) == 100_000
        now = log.read("orders", limit=1)[0].created_at
        plan = Watched(log, sql).explain(
            "drain.left", group_id=group.group_id, horizon=100_000, now=now, ordered=False, halts=False
        )
        assert log.drained("orders", "g") and read_rows(plan, "events") <= 100, scans(plan)


@pytest.mark.shows("O11")
def test_a_look_at_one_event_reads_no_others(million: tuple[penstock.Log, psycopg.Connection[Any]]) -> None:
    """Its life in every group, early in the log and late."""
    log, sql = million
    watched = Watched(log, sql)
    ids = [one.group_id for one in log.groups("orders")]
    for offset in (11, 499_999, EVENTS - 1):
        for block in ("life.deliveries", "life.history"):
            plan = watched.explain(block, stream="orders", offset=offset)
            assert not {("Seq Scan", table) for table in ("events", "leases", "attempt_log")} & scans(plan), block
            assert read_rows(plan, "events") <= 40 and read_rows(plan, "leases") <= 400, (block, offset)
        before = watched.explain("life.before", ids=ids, stream="orders", offset=offset, bucket=7, most=1_000)
        assert read_rows(before, "events") <= 2 * 1_000 * len(ids)  # in the index, and in the table
    newest = watched.explain("jobs.newest", stream="other", before=EVENTS, limit=50)
    assert read_rows(newest, "events") <= 50 and scans(newest) == {("Index Only Scan", "events")}

"""Queries for deliveries: pages skip ranges without matches and miss nothing."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

import penstock
from penstock.log import deliveries, tally
from penstock.stores.postgres.transaction import PostgresTransaction
from penstock.testing import VirtualClock
from tests.support.query_plans import plan_nodes

TRICKLED = 20_000


@pytest.mark.shows("K37", "K22")
@pytest.mark.parametrize("seed", range(3))
def test_filtered_pages_together_show_what_one_unfiltered_query_shows(
    clocked: penstock.Log, clock: VirtualClock, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, dice = clocked, random.Random(seed)
    monkeypatch.setattr(tally, "TALLY_EVERY", 16)
    monkeypatch.setattr(tally, "TALLY_GROWTH", 16)
    monkeypatch.setattr(deliveries, "_WINDOW", 8)
    log.create_group("s", "g", ordering=dice.choice([None, "key"]))
    began = clock.now()
    for _ in range(12):
        types = ["a", "b"] if dice.random() < 0.8 else ["rare"]
        events = [{"payload": n, "type": dice.choice(types), "ordering_key": f"k{n % 5}"} for n in range(15)]
        log.append_many(dice.choice(["s", "s", "other"]), events)
        lease = log.claim("s", "g", limit=dice.randrange(1, 25), claimed_by="w", lease_seconds=50)
        if lease is not None and dice.random() < 0.8:
            ids = [event.event_id for event in lease.events]
            lease.settle(failed=dict.fromkeys(ids[:2], "no"), dead=dict.fromkeys(ids[2:3], "bad"))
        clock.advance(dice.choice([0, 5, 60]))
        log.reap()
    monkeypatch.setattr(deliveries, "_WINDOW", 10_000)
    whole = log.deliveries("s", "g", limit=10_000)
    assert {one.event_id for one in whole} == {event.event_id for event in log.read("s", limit=10_000)}
    monkeypatch.setattr(deliveries, "_WINDOW", 4)
    middle = whole[len(whole) // 2].created_at
    for state in (None, "PENDING", "CLAIMED", "PUBLISHED", "DEAD"):
        for kind in (None, "a", "rare", "none"):
            for times in ({}, {"since": middle}, {"until": middle}, {"since": began, "until": clock.now()}):
                wanted = [
                    one
                    for one in whole
                    if state in (None, str(one.state))
                    and kind in (None, one.event_type)
                    and times.get("since", began) <= one.created_at
                    and one.created_at < times.get("until", clock.now() + timedelta(1))
                ]
                found: list[Any] = []
                while page := log.deliveries(
                    "s", "g", state=state, type=kind, after=found[-1].offset if found else 0, limit=7, **times
                ):
                    found += page
                assert found == wanted, (state, kind, times)
    some = [one.event_id for one in dice.sample(whole, 5)]
    assert {one.event_id for one in log.deliveries("s", "g", event_ids=some)} == set(some)


@pytest.mark.shows("K37")
def test_a_position_in_time_is_found_by_bisection(clocked: penstock.Log, clock: VirtualClock) -> None:
    log = clocked
    moments = []
    for _ in range(20):
        moments.append(clock.now())
        log.append("s", {}, type="t")
        log.append_many("other", [{"payload": 1, "type": "t"}] * 3)
        clock.advance(10)
    offsets = [event.offset for event in log.read("s")]
    for number, moment in enumerate(moments):
        group = log.create_group("s", f"at{number}", start=moment)
        assert group.floor < offsets[number] and (number == 0 or group.floor >= offsets[number - 1])
        late = log.create_group("s", f"late{number}", start=moment + timedelta(seconds=1))
        assert late.floor >= offsets[number]
    assert log.create_group("s", "never", start=clock.now()).floor == log.stats().horizon
    assert log.create_group("nobody", "g", start=moments[3]).floor == log.stats().horizon


@pytest.mark.shows("K37")
@pytest.mark.parametrize("ordering", [None, "key"])
def test_a_dry_run_of_a_rewind_returns_what_the_rewind_returns(
    clocked: penstock.Log, clock: VirtualClock, ordering: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = clocked
    monkeypatch.setattr(tally, "TALLY_EVERY", 16)
    monkeypatch.setattr(tally, "TALLY_GROWTH", 16)
    events = [{"payload": n, "type": "ab"[n % 2], "ordering_key": f"k{n % 7}"} for n in range(60)]
    for start in (0, 13):
        for types in (None, ["a"]):
            name = f"g{start}{types and types[0]}"
            log.create_group("s", name, start=start, types=types, ordering=ordering)
    log.append_many("s", events)
    log.reap()
    for group in log.groups("s"):
        for _ in range(3):
            lease = log.claim("s", group.group_name, limit=9, claimed_by="w")
            assert lease is not None
            lease.settle(dead={lease.events[0].event_id: "no"})
        for target in (25, 13, 5, 0):
            told = log.rewind("s", group.group_name, to=target, dry_run=True).count
            assert log.rewind("s", group.group_name, to=target).count == told, (group.group_name, target)


@pytest.fixture
def trickled(postgres_log: penstock.Log, postgres_log_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A log that grew slowly: every event has its own lease, in two groups."""
    log = postgres_log
    log.append_many("s", [{"payload": 1, "type": "t"}] * TRICKLED)
    groups = [log.create_group("s", name) for name in ("g", "h")]
    with psycopg.connect(postgres_log_url, autocommit=True) as sql:
        sql.execute("alter table penstock.leases disable trigger born_open")  # so many real claims would take too long
        for group in groups:
            sql.execute(
                """insert into penstock.leases (group_id, lane, lanes, binding, token, claimed_by, claimed_at,
                                                expires_at, attempts, members, low, high, fresh, total, outcome,
                                                upto, ended_at)
                   select %s, 0, 1, %s, n, 'w', now(), now(), 1, 1, n - 1, n, true, n, 'settled', n, now()
                     from generate_series(1, %s) n""",
                (group.group_id, group.spans[0].binding, TRICKLED),
            )
        sql.execute("alter table penstock.leases enable always trigger born_open")
        sql.execute("vacuum analyze")
        yield sql


def read_from(log: penstock.Log, sql: psycopg.Connection[Any], name: str, block: str, **params: Any) -> tuple[int, int]:
    """How many rows a block returns, and how many entries of a table or its indexes it reads."""
    statement: Any = "explain (analyze, format json) " + log.store.blocks[block]
    row = sql.execute(statement, params, prepare=False).fetchone()
    assert row is not None
    plan = (row[0] if isinstance(row[0], list) else json.loads(row[0]))[0]["Plan"]
    return int(plan["Actual Rows"]), sum(
        int(node["Actual Rows"] * node["Actual Loops"])
        for node in plan_nodes(plan)
        if node.get("Index Name", node.get("Relation Name", "")).startswith(name) and not node.get("Plans")
    )


ANY: dict[str, Any] = dict.fromkeys(("event_ids", "error", "event_type", "since", "until", "fingerprint"))


@pytest.mark.shows("K37")
def test_the_lease_of_an_event_is_found_among_any_number_of_leases(
    postgres_log: penstock.Log, trickled: psycopg.Connection[Any]
) -> None:
    asked = ANY | {
        "group_id": 1,
        "stream": "s",
        "after": 5_000,
        "upto": 5_100,
        "state": None,
        "limit": 100,
        "hide": False,
    }
    rows, leases = read_from(postgres_log, trickled, "leases", "inspect.deliveries", **asked)
    assert rows == 100 and leases < 10 * rows
    asked = {"group_id": 1, "low": 5_000, "high": 5_100, "lane": 0, "lanes": 1}
    rows, leases = read_from(postgres_log, trickled, "leases", "claim.ranges_before", **asked)
    assert rows == 100 and leases < 10 * rows


@pytest.mark.shows("K37", "K24")
def test_a_replay_since_a_time_reads_only_events_since_then(
    postgres_log: penstock.Log, trickled: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claimers wait while an operator works on their group, so its cost must depend on what it moves."""
    asked: dict[str, Any] = {}
    ask = PostgresTransaction.rows

    def asking(tx: Any, block: str, **params: Any) -> list[Any]:
        asked[block] = params
        return ask(tx, block, **params)

    monkeypatch.setattr(PostgresTransaction, "rows", asking)
    young = postgres_log.read("s", after=TRICKLED - 20)[0]
    moved = postgres_log.replay("s", "g", since=young.created_at, dry_run=True).count
    rows, events = read_from(postgres_log, trickled, "events", "replay.find", **asked["replay.find"])
    assert rows == moved >= 20 and events < 10 * rows


@pytest.mark.shows("K48")
def test_prune_reads_only_leases_below_its_limit(postgres_log: penstock.Log, trickled: psycopg.Connection[Any]) -> None:
    assert postgres_log.prune("s", upto=10).count == 10
    assert trickled.execute("select count(*) from penstock.leases").fetchall() == [(2 * (TRICKLED - 10),)]
    row = trickled.execute("explain (analyze, buffers, format json) select penstock.prune_leases(1, 10)").fetchone()
    assert row is not None
    assert row[0][0]["Plan"]["Shared Hit Blocks"] < TRICKLED, "read a block for every lease"

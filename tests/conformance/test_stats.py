"""Counts, lag and age: right after any history, at a cost that depends on what is asked for."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
import pytest

import penstock
from penstock.log import tally
from penstock.testing import VirtualClock
from tests.support.log_steps import append_orders, claim_and_settle_all, statements
from tests.support.logs import MakeLog
from tests.support.raw_sql import raw
from tests.support.true_stats import check_stats


@pytest.mark.shows("K33")
def test_the_age_of_a_keyed_group_is_that_of_its_oldest_unfinished_event(
    clocked: penstock.Log, clock: VirtualClock
) -> None:
    """An idle lane does not affect the age, although its cursor may be far behind."""
    log = clocked
    log.create_group("orders", "keyed", ordering="key", lanes=8)
    keys = [f"c-{n}" for n in range(40)]
    for key in keys[:20]:
        log.append("orders", {}, type="t", ordering_key=key)
    assert len(claim_and_settle_all(log, group="keyed")) == 20
    clock.advance(500)
    assert log.stats().groups[0].oldest_seconds is None
    log.append("orders", {}, type="t", ordering_key=keys[30])
    assert log.stats().groups[0].oldest_seconds == 0
    clock.advance(20)
    for key in keys[20:]:
        log.append("orders", {}, type="t", ordering_key=key)
    check_stats(log, clock.now())
    lease = log.claim("orders", "keyed", limit=100, claimed_by="w")
    assert lease is not None
    check_stats(log, clock.now())
    lease.settle(failed={lease.events[0].event_id: "no"})
    clock.advance(7)
    check_stats(log, clock.now())


@pytest.mark.shows("K33")
def test_the_age_of_a_filtered_group_ignores_events_it_does_not_match(
    clocked: penstock.Log, clock: VirtualClock
) -> None:
    log = clocked
    log.create_group("orders", "rare", types=["rare"])
    log.create_group("orders", "eu", headers={"region": "eu"})
    append_orders(log, 30)
    clock.advance(100)
    assert [one.oldest_seconds for one in log.stats().groups] == [None, None]
    log.append("orders", {}, type="rare", headers={"region": "eu"})
    clock.advance(5)
    assert [one.oldest_seconds for one in log.stats().groups] == [5, 5]
    check_stats(log, clock.now())


@pytest.mark.shows("K38", "K33")
@pytest.mark.parametrize("seed", range(4))
def test_counts_and_ages_are_true_after_any_history(
    clocked: penstock.Log, clock: VirtualClock, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, dice = clocked, random.Random(seed)
    monkeypatch.setattr(tally, "TALLY_EVERY", 16)  # many marks, steps and tails in a short log
    monkeypatch.setattr(tally, "TALLY_GROWTH", 24)
    groups: list[tuple[str, str]] = []
    leases: list[penstock.Lease] = []

    def append() -> None:
        events = [
            {"payload": n, "type": dice.choice("abc"), "ordering_key": dice.choice([None, "x", "y", "z", "q"])}
            for n in range(dice.randrange(1, 20))
        ]
        log.append_many(dice.choice(["s", "t"]), events)

    def create() -> None:
        stream, name = dice.choice(["s", "t"]), f"g{len(groups)}"
        start: Any = dice.choice(["beginning", "end", dice.randrange(50), clock.now()])
        types, ordering = dice.choice([None, None, ["a"], ["b", "c"]]), dice.choice([None, "key"])
        log.create_group(stream, name, start=start, types=types, ordering=ordering)
        groups.append((stream, name))

    def claim() -> None:
        lease = log.claim(*dice.choice(groups), limit=dice.randrange(1, 12), claimed_by="w")
        if lease is not None:
            leases.append(lease)

    def settle() -> None:
        if leases:
            lease = leases.pop(dice.randrange(len(leases)))
            ids = [event.event_id for event in lease.events]
            dice.shuffle(ids)
            parts = {"failed": dict.fromkeys(ids[:1], "no"), "dead": dict.fromkeys(ids[1:2], "no")}
            with suppress(penstock.LeaseLost):
                lease.settle(released=ids[2:3], **{name: parts[name] for name in parts if dice.random() < 0.5})

    def operate() -> None:
        stream, group = dice.choice(groups)
        action: Callable[[], Any] = dice.choice(
            [
                lambda: log.redrive(stream, group, all=True),
                lambda: log.replay(stream, group, type="a"),
                lambda: log.rewind(stream, group, to=dice.randrange(60)),
                lambda: log.bind(stream, group, types=[dice.choice("abc")]),
                log.reap,
            ]
        )
        action()
        leases.clear()

    append()
    create()
    for _ in range(60):
        dice.choice([append, append, create, claim, claim, claim, settle, settle, operate])()
        clock.advance(dice.choice([0, 1, 30]))
        if dice.random() < 0.3:
            log.reap()
            check_stats(log, clock.now())
    log.reap()
    check_stats(log, clock.now())


@pytest.mark.shows("K38")
def test_the_tally_stays_small_with_many_streams(
    log: penstock.Log, log_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tally, "TALLY_EVERY", 100)
    monkeypatch.setattr(tally, "TALLY_GROWTH", 100)
    for _ in range(5):
        for number in range(100):
            append_orders(log, 2, stream=f"s{number}")
        append_orders(log, 200, stream="busy")
    log.reap()
    with raw(log_url) as sql:
        sizes = {name: sql(f"select count(*) from penstock.{name}")[0][0] for name in ("tally_now", "tally_step")}
    assert sizes["tally_now"] == 101 and sizes["tally_step"] <= 10, sizes
    assert {one.stream: one.events for one in log.stats().streams} == {
        "busy": 1000,
        **{f"s{number}": 10 for number in range(100)},
    }


@pytest.mark.shows("K38")
def test_one_session_counts_the_log_and_the_others_do_not_wait(
    make_log: MakeLog, log_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tally, "TALLY_EVERY", 10)
    log, other = make_log(), make_log()
    append_orders(log, 95)
    if log.store.kind == "postgresql":
        with psycopg.connect(log_url) as counting, statements(other) as ran:
            counting.execute("select * from penstock.tally_mark for update")
            assert other.reap() == 0, "waited for the session that counts"
        assert ran["tally.turn"] == 1 and not ran["tally.mark"] and not ran["tally.add"]
    with statements(log) as ran:
        log.reap()
    assert ran["tally.add"] == 9
    with statements(other) as ran:
        other.reap()
    assert not ran["tally.turn"], "locked although there was nothing to count"
    append_orders(log, 5)
    with statements(other) as ran:
        other.reap()
    assert ran["tally.add"] == 1
    assert [one.events for one in log.stats().streams] == [100]


@pytest.mark.shows("K38")
def test_reap_and_stats_run_as_many_statements_for_many_groups_as_for_few(
    clocked: penstock.Log, clock: VirtualClock
) -> None:
    log = clocked
    append_orders(log, 20)
    log.reap()  # notes the horizon for standbys
    asked = []
    for many in (range(3), range(3, 60)):
        for number in many:
            log.create_group("orders", f"g{number}", start=number)
        with statements(log) as ran:
            assert log.reap() == 0
            assert len(log.stats().groups) == many.stop
        asked.append(ran)
    assert asked[0] == asked[1], "the number of statements grows with the groups"
    for number in (5, 17):
        assert log.claim("orders", f"g{number}", limit=1, claimed_by="w", lease_seconds=5) is not None
    clock.advance(6)
    with statements(log) as ran:
        assert log.reap(stream="orders", group="g5") == 1
    assert ran["group.lock"] == 1, "a group without expired leases was locked"
    assert log.reap(groups=[("orders", "g3"), ("orders", "g4")]) == 0
    assert log.reap(groups=[("orders", "g17")]) == 1
    assert log.reap() == 0

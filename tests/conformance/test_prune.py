"""Prune: what is removed, what is kept, and that counts, reads and history are right afterwards."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import penstock
from penstock.core import limits
from penstock.log import tally
from penstock.log.runs import NewRun
from penstock.testing import VirtualClock
from tests.support.log_steps import append_orders, claim_and_settle_all, state_by_event
from tests.support.raw_sql import raw
from tests.support.true_stats import check_stats


def sizes(url: str) -> dict[str, int]:
    tables = ("events", "leases", "deliveries", "attempt_log", "returned", "tally_step", "tally_now", "fingerprints")
    with raw(url) as sql:
        return {name: sql(f"select count(*) from penstock.{name}")[0][0] for name in tables}


@pytest.mark.shows("K48")
def test_prune_goes_around_dead_letters_and_unfinished_events(clocked: penstock.Log, clock: VirtualClock) -> None:
    log = clocked
    ids = append_orders(log, 20)
    log.create_group("orders", "g")
    lease = log.claim("orders", "g", limit=12, claimed_by="w")
    assert lease is not None
    lease.settle(dead={ids[2]: "no"}, failed={ids[5]: "later"})
    assert log.prune("orders", upto=10**6).count == 10, "pruned too much or too little"
    assert [event.event_id for event in log.read("orders")] == [ids[2], ids[5], *ids[12:]]
    assert state_by_event(log) == {ids[2]: "DEAD", ids[5]: "PENDING", **dict.fromkeys(ids[12:], "PENDING")}
    assert log.delivery("orders", "g", ids[2]).history, "the history of a dead letter was pruned"
    check_stats(log, clock.now())
    later = append_orders(log, 5)
    log.create_group("orders", "new")
    check_stats(log, clock.now())
    assert set(claim_and_settle_all(log, group="new")) == {ids[2], ids[5], *ids[12:], *later}, "a later event is hidden"
    assert log.redrive("orders", "g", all=True).count == 1
    clock.advance(100)
    claim_and_settle_all(log)
    check_stats(log, clock.now())
    assert log.prune("orders", upto=log.end()).count == 15
    assert log.read("orders", limit=100) == [] or len(log.read("orders", limit=100)) == 0
    check_stats(log, clock.now())
    assert [(one.lag, one.published, one.oldest_seconds) for one in log.stats().groups] == [(0, 0, None)] * 2


@pytest.mark.shows("K48")
def test_dead_letters_are_pruned_only_on_request(clocked: penstock.Log, clock: VirtualClock) -> None:
    log = clocked
    ids = append_orders(log, 6)
    for group in ("g", "other"):
        log.create_group("orders", group)
        lease = log.claim("orders", group, limit=6, claimed_by="w")
        assert lease is not None
        lease.settle(dead={ids[1]: "no"})
    assert log.prune("orders", upto=log.end()).count == 5
    assert log.prune("orders", upto=log.end(), keep_dead=False).count == 1
    assert state_by_event(log) == {} and [one.dead for one in log.stats().groups] == [0, 0]
    check_stats(log, clock.now())


@pytest.mark.shows("K48")
def test_leases_history_and_counts_are_pruned_with_their_events(
    log: penstock.Log, log_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tally, "TALLY_EVERY", 20)
    monkeypatch.setattr(tally, "TALLY_GROWTH", 20)
    monkeypatch.setattr(limits, "TALLY_GROWTH", 20)
    monkeypatch.setattr(limits, "PRUNE_BATCH", 7)
    log.create_group("orders", "g", retry=penstock.Retry(base_seconds=0, jitter=0))
    log.create_group("orders", "keyed", ordering="key")
    left = []
    for _ in range(4):
        ids = append_orders(log, 30, ordering_key="c")
        for group in ("g", "keyed"):
            lease = log.claim("orders", group, limit=10, claimed_by="w")
            assert lease is not None
            lease.settle(failed={lease.events[3].event_id: "no"})
            while not log.drained("orders", group):
                claim_and_settle_all(log, group=group, limit=10)
        log.reap()
        assert log.prune("orders", upto=log.end()).count == 30
        left.append(sizes(log_url))
        assert not ids or log.stats().streams == ()
    assert left[-1] == left[1], "a table grew"
    assert left[-1]["leases"] <= 2 * 9 and left[-1]["attempt_log"] == left[-1]["deliveries"] == 0
    assert left[-1]["tally_step"] == left[-1]["tally_now"] == 0


@pytest.mark.shows("K48")
def test_operator_records_of_ranges_are_pruned_with_the_ranges(log: penstock.Log, log_url: str) -> None:
    def left() -> list[tuple[Any, ...]]:
        with raw(log_url) as sql:
            return sql("select group_name from penstock.range_actions join penstock.groups using (group_id) order by 1")

    ids = append_orders(log, 10)
    for group in ("g", "gone"):
        log.create_group("orders", group)
        claim_and_settle_all(log, group=group)
        log.rewind("orders", group, to="beginning")
        claim_and_settle_all(log, group=group)
    assert left() == [("g",), ("gone",)]
    assert log.prune("orders", upto=log.end() - 1).count == 9
    assert left() == [("g",), ("gone",)], "pruned although an event of the range is left"
    assert "rewound" in {one.outcome for one in log.delivery("orders", "g", ids[-1]).history}
    log.delete_group("orders", "gone")
    assert left() == [("g",)]
    with raw(log_url) as sql:
        assert sql("select count(*) from penstock.range_actions") == [(1,)]
    log.prune("orders", upto=log.end())
    assert left() == []


@pytest.mark.shows("K48")
def test_an_error_kind_is_kept_while_something_refers_to_it(
    clocked: penstock.Log, clock: VirtualClock, log_url: str
) -> None:
    log = clocked

    def named(*tables: str) -> set[str]:
        with raw(log_url) as sql:
            return {one[0] for table in tables for one in sql(f"select fingerprint from penstock.{table}") if one[0]}

    append_orders(log, 10, stream="others")
    log.create_group("others", "g")
    assert log.claim("others", "g", limit=4, claimed_by="w", lease_seconds=5) is not None
    clock.advance(10)
    assert log.reap() == 1
    assert (
        not named("attempt_log", "deliveries")
        and named("leases") == named("returned") == named("fingerprints") != set()
    )
    append_orders(log, 1)
    log.prune("orders", upto=log.end())
    assert named("leases") <= named("fingerprints"), "a kind that leases or returned ranges refer to was pruned"
    claim_and_settle_all(log, "others")
    assert not named("returned")
    log.prune("orders", upto=log.end())
    assert named("leases") <= named("fingerprints") != set(), "a kind that an ended lease refers to was pruned"
    append_orders(log, 1, stream="others")
    claim_and_settle_all(log, "others")
    log.prune("others", upto=log.end())
    assert not named("leases", "fingerprints"), "kept without a reference"


def run_of(log: penstock.Log, name: str) -> int:
    return log.start_run(NewRun(name, None, "local", "1", "host", 1, ["orders/g"]))


@pytest.mark.shows("K48")
def test_a_run_keeps_its_counts_when_its_leases_are_pruned(log: penstock.Log, log_url: str) -> None:
    def counts() -> list[tuple[Any, ...]]:
        """The counts of a run are those in its row plus those of its remaining leases."""
        names = ("published", "failed", "dead", "released")
        sums = (f"r.{n} + (select coalesce(sum(l.{n}), 0) from penstock.leases l where l.run = r.id)" for n in names)
        with raw(log_url) as sql:
            return [tuple(map(int, row)) for row in sql(f"select {', '.join(sums)} from penstock.runs r order by id")]

    first, second = run_of(log, "first"), run_of(log, "second")
    for group in ("g", "gone"):
        log.create_group("orders", group, retry=penstock.Retry(base_seconds=0, jitter=0))
    for _ in range(3):
        append_orders(log, 10)
        for group in ("g", "gone"):
            for run in (first, second, None):
                lease = log.claim("orders", group, limit=5, claimed_by="w", run=run)
                assert lease is not None
                these = [event.event_id for event in lease.events]
                lease.settle(failed=dict.fromkeys(these[:1], "no"), dead=dict.fromkeys(these[1:2], "no"))
            claim_and_settle_all(log, group=group)
    told = counts()
    assert all(published and failed and dead for published, failed, dead, _ in told)
    assert log.prune("orders", upto=log.end(), keep_dead=False).count == 30
    assert counts() == told
    log.delete_group("orders", "gone")
    assert counts() == told
    log.prune("orders", upto=log.end())
    assert counts() == told


@pytest.mark.shows("K48")
def test_old_runs_are_pruned(clocked: penstock.Log, clock: VirtualClock) -> None:
    log = clocked
    ended, lost, long, alive = (run_of(log, name) for name in ("ended", "lost", "long", "alive"))
    log.end_run(ended, "stopped")
    clock.advance(limits.RUN_KEPT_DAYS * 86_400 - 10)
    log.end_run(long, "stopped")
    log.beat_run(alive)
    log.prune("orders", upto=0)
    assert {one.id for one in log.runs(all=True)} == {ended, lost, long, alive}
    clock.advance(20)
    log.prune("orders", upto=0)
    assert {one.id for one in log.runs(all=True)} == {long, alive}
    assert log.beat_run(lost) == "run", "a run does not continue without its row"
    assert run_of(log, "next") > alive, "its number was given to another run"


@pytest.mark.shows("K48")
def test_prune_accepts_a_time_and_refuses_bad_limits(clocked: penstock.Log, clock: VirtualClock) -> None:
    log = clocked
    append_orders(log, 3)
    clock.advance(10)
    between = clock.now()
    clock.advance(10)
    later = append_orders(log, 2)
    for wrong in ({}, {"upto": 3, "before": between}, {"upto": -1}, {"before": between.replace(tzinfo=None)}):
        with pytest.raises(penstock.PenstockError):
            log.prune("orders", **wrong)  # type: ignore[arg-type]
    assert log.prune("orders", before=between).count == 3
    assert [event.event_id for event in log.read("orders")] == later
    again = log.append("orders", {"n": 0}, type="order.created", event_id=penstock.event_id("first"))
    assert not again.duplicate
    clock.advance(1)
    assert log.prune("orders", before=clock.now()).count == 3
    assert not log.append("orders", {"n": 0}, type="order.created", event_id=penstock.event_id("first")).duplicate


@pytest.mark.shows("K48")
@pytest.mark.parametrize("seed", range(4))
def test_counts_reads_and_history_are_right_after_random_prunes(  # noqa: PLR0915
    clocked: penstock.Log, clock: VirtualClock, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, dice = clocked, random.Random(seed)
    monkeypatch.setattr(tally, "TALLY_EVERY", 16)
    monkeypatch.setattr(tally, "TALLY_GROWTH", 24)
    monkeypatch.setattr(limits, "TALLY_GROWTH", 24)
    monkeypatch.setattr(limits, "PRUNE_BATCH", 9)
    groups: list[str] = []

    def append() -> None:
        events = [
            {
                "payload": n,
                "type": dice.choice("abc"),
                "ordering_key": dice.choice([None, "x", "y", "z"]),
                "headers": dice.choice([None, {"region": "eu"}]),
            }
            for n in range(dice.randrange(5, 30))
        ]
        log.append_many("s", events)

    def create() -> None:
        groups.append(f"g{len(groups)}")
        log.create_group(
            "s",
            groups[-1],
            start=dice.choice(["beginning", "end", dice.randrange(100)]),
            types=dice.choice([None, None, ["a"], ["b", "c"]]),
            headers=dice.choice([None, None, {"region": "eu"}]),
            ordering=dice.choice([None, "key"]),
            lanes=None,
        )

    def work() -> None:
        for _ in range(dice.randrange(1, 6)):
            lease = log.claim("s", dice.choice(groups), limit=dice.randrange(5, 30), claimed_by="w", lease_seconds=60)
            if lease is None or dice.random() < 0.1:
                continue
            ids = [event.event_id for event in lease.events]
            dice.shuffle(ids)
            failed, dead, back = ids[:1], ids[1:2], ids[2:3]
            if dice.random() < 0.6:
                failed, dead, back = [], [], []
            lease.settle(failed=dict.fromkeys(failed, "no"), dead=dict.fromkeys(dead, "no"), released=back)

    def operate() -> None:
        group = dice.choice(groups)
        action: Callable[[], Any] = dice.choice(
            [
                lambda: log.redrive("s", group, all=True),
                lambda: log.replay("s", group, type="a"),
                lambda: log.rewind("s", group, to=dice.randrange(max(1, log.end()))),
                lambda: log.bind("s", group, types=[dice.choice("abc")]),
            ]
        )
        with suppress(penstock.Pruned):
            action()

    def prune() -> None:
        upto, keep_dead = dice.randrange(log.end() + 20), dice.random() < 0.7
        before = {event.event_id: event.offset for event in log.read("s", limit=100_000)}
        needed = {
            one.event_id
            for group in groups
            for one in log.deliveries("s", group, limit=100_000)
            if str(one.state) in ("PENDING", "CLAIMED", *(["DEAD"] if keep_dead else []))
        }
        finished = {group: state_by_event(log, "s", group) for group in groups}
        history = {
            group: {one: log.delivery("s", group, one).history for one in finished[group]} for group in groups[:1]
        }
        gone = log.prune("s", upto=upto, keep_dead=keep_dead).count
        left = {event.event_id for event in log.read("s", limit=100_000)}
        assert gone == len(before) - len(left)
        assert left >= needed and left >= {one for one, offset in before.items() if offset > upto}
        for group in groups:
            assert state_by_event(log, "s", group) == {
                one: state for one, state in finished[group].items() if one in left
            }
        for group, lines in history.items():
            for one in left & set(lines):
                assert log.delivery("s", group, one).history == lines[one]

    append()
    create()
    for _ in range(25):
        dice.choice([append, append, create, work, work, work, operate, prune])()
        clock.advance(dice.choice([0, 1, 40]))
        if dice.random() < 0.5:
            log.reap()
            check_stats(log, clock.now())
    prune()
    check_stats(log, clock.now())
    for group in groups:
        wanted = {one for one, state in state_by_event(log, "s", group).items() if state in ("PENDING", "CLAIMED")}
        clock.advance(100_000)
        log.reap()
        seen: set[Any] = set()
        while found := claim_and_settle_all(log, "s", group):
            seen |= set(found)
            clock.advance(100_000)
        assert seen == wanted, "claims after a prune differ from what was pending"
    check_stats(log, clock.now())

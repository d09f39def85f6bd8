"""Restore: archived events come back under their own offsets, and every count, read and history is true afterwards."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.core import limits
from penstock.log import tally
from penstock.testing import VirtualClock
from penstock.testing.crash import StatementCounter
from tests.support.log_steps import append_orders, claim_and_settle_all, state_by_event
from tests.support.logs import MakeLog
from tests.support.plain_archive import archive
from tests.support.true_stats import check_stats


def everything(log: penstock.Log, stream: str = "orders") -> list[tuple[Any, ...]]:
    names = [
        "offset",
        "event_id",
        "event_type",
        "payload",
        "content_type",
        "headers",
        "metadata",
        "partition_key",
        "ordering_key",
    ]
    names += ["available_at", "created_at"]
    return [tuple(getattr(one, name) for name in names) for one in log.read(stream, limit=1_000_000)]


@pytest.mark.shows("O05", "K48")
def test_archived_events_can_be_delivered_again(clocked: penstock.Log, clock: VirtualClock, tmp_path: Path) -> None:
    log = clocked
    first = append_orders(log, 5)
    log.append("orders", b"\x00\xff", type="blob", headers={"a": "b"}, metadata={"m": 1}, partition_key="p")
    ids = [one.event_id for one in log.read("orders")]
    for group in ("g", "keyed"):
        log.create_group("orders", group, ordering="key" if group == "keyed" else None)
        claim_and_settle_all(log, group=group)
    before = everything(log)
    archive(log, "orders", tmp_path)
    assert log.prune("orders", upto=log.end()).count == 6
    with pytest.raises(penstock.Pruned, match="penstock restore orders"):
        log.rewind("orders", "g", to="beginning")
    log.create_group("orders", "later")
    done = log.restore("orders", by="me")
    assert (done.events, done.present, done.taken, done.pruned_upto) == (6, 0, 0, 0)
    assert everything(log) == before
    assert log.restore("orders").events == 0, "restored twice"
    assert state_by_event(log) == dict.fromkeys(ids, "PUBLISHED") == state_by_event(log, group="keyed")
    assert state_by_event(log, group="later") == dict.fromkeys(ids, "PENDING")
    assert log.delivery("orders", "g", first[0]).total_attempts == 1
    check_stats(log, clock.now())
    assert log.rewind("orders", "g", to="beginning").count == 6
    assert log.replay("orders", "keyed", all=True).count == 6
    check_stats(log, clock.now())
    clock.advance(100)
    assert [*claim_and_settle_all(log)] == ids
    for group in ("keyed", "later"):
        assert {*claim_and_settle_all(log, group=group)} == {*ids}
    check_stats(log, clock.now())
    assert append_orders(log, 1), "the horizon was moved"
    assert log.read("orders", limit=100)[-1].offset == before[-1][0] + 1


@pytest.mark.shows("O05", "K48")
def test_a_part_is_restored_and_the_rest_stays_pruned(clocked: penstock.Log, tmp_path: Path) -> None:
    log = clocked
    append_orders(log, 20)
    log.create_group("orders", "g")
    claim_and_settle_all(log)
    archive(log, "orders", tmp_path)
    offsets = [one.offset for one in log.read("orders")]
    log.prune("orders", upto=offsets[14])
    assert log.restore("orders", after=offsets[3], upto=offsets[9]).pruned_upto == offsets[14]
    assert log.restore("orders", after=offsets[9]).pruned_upto == offsets[9]
    assert log.restore("orders", after=offsets[4]).pruned_upto == offsets[4]
    assert [one.offset for one in log.read("orders")] == offsets[4:]
    with pytest.raises(penstock.Pruned):
        log.rewind("orders", "g", to=offsets[4] - 1)
    assert log.rewind("orders", "g", to=offsets[4]).count == 15


@pytest.mark.shows("K48")
def test_what_was_never_archived_stays_pruned(clocked: penstock.Log, tmp_path: Path) -> None:
    log = clocked
    append_orders(log, 6)
    log.prune("orders", upto=2)
    with pytest.raises(penstock.NotArchived):
        log.restore("orders")
    archive(log, "orders", tmp_path)
    log.prune("orders", upto=6)
    assert log.restore("orders").pruned_upto == 2
    assert [one.offset for one in log.read("orders")] == [3, 4, 5, 6]


@pytest.mark.shows("K48")
def test_an_id_that_was_appended_again_is_not_taken_away(clocked: penstock.Log, tmp_path: Path) -> None:
    log = clocked
    for name in ("a", "b"):
        log.append("orders", name, type="t", event_id=penstock.event_id(name))
    archive(log, "orders", tmp_path)
    log.prune("orders", upto=log.end())
    again = log.append("orders", "new", type="t", event_id=penstock.event_id("a"))
    assert not again.duplicate
    done = log.restore("orders")
    assert (done.events, done.taken) == (1, 1)
    assert log.event("orders", penstock.event_id("a")).json() == "new"


@pytest.mark.shows("K48")
def test_a_range_in_work_is_not_given_more_events(clocked: penstock.Log, clock: VirtualClock, tmp_path: Path) -> None:
    log = clocked
    append_orders(log, 10)
    archive(log, "orders", tmp_path)
    log.prune("orders", upto=5)
    log.create_group("orders", "g")
    lease = log.claim("orders", "g", claimed_by="w")
    assert lease is not None
    with pytest.raises(penstock.InFlight):
        log.restore("orders")
    lease.release()
    assert log.restore("orders").events == 5
    check_stats(log, clock.now())
    assert len(claim_and_settle_all(log)) == 10
    check_stats(log, clock.now())


class Killed(BaseException):
    """The process dies here."""


@pytest.mark.shows("O05", "K48")
def test_a_restore_killed_at_any_statement_goes_on(
    make_log: MakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RESTORE_BATCH", 5)
    counter = StatementCounter()
    log = make_log(hook=counter)
    append_orders(log, 8, ordering_key="c")
    log.create_group("orders", "g", ordering="key", lanes=2)
    claim_and_settle_all(log)
    before = everything(log)
    archive(log, "orders", tmp_path)
    log.prune("orders", upto=log.end())
    counter.reset()
    log.restore("orders")
    restored, stats = everything(log), log.stats()
    total = len(counter.blocks)
    assert restored == before and total > 20

    def killed_at(number: int) -> Any:
        left = [number]

        def hook(when: str, block: str) -> None:
            if when == "after":
                left[0] -= 1
                if not left[0]:
                    raise Killed

        return hook

    for number in range(1, total + 1, 5):
        log.prune("orders", upto=log.end())
        monkeypatch.setattr(log.store, "hook", killed_at(number))
        with suppress(Killed):
            log.restore("orders")
        monkeypatch.setattr(log.store, "hook", None)
        partly = log.stats().groups[0]
        assert partly.published == len(everything(log)) and partly.lag == 0, number
        assert log.restore("orders").pruned_upto == 0
        assert everything(log) == before, number
        (found,), (whole,) = log.stats().groups, stats.groups
        assert (found.published, found.lag, found.pending) == (whole.published, whole.lag, whole.pending), number


@pytest.mark.shows("K48", "O05")
@pytest.mark.parametrize("seed", range(2))
def test_random_histories_with_archives_prunes_and_restores(  # noqa: PLR0915
    clocked: penstock.Log, clock: VirtualClock, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, dice = clocked, random.Random(seed)
    for place in (tally, limits):
        monkeypatch.setattr(place, "TALLY_GROWTH", 24)
    monkeypatch.setattr(tally, "TALLY_EVERY", 16)
    monkeypatch.setattr(limits, "PRUNE_BATCH", 9)
    monkeypatch.setattr(limits, "RESTORE_BATCH", 6)
    groups: list[str] = []
    appended: dict[int, tuple[Any, ...]] = {}

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
        appended.update({one[0]: one for one in everything(log, "s")})

    def create() -> None:
        groups.append(f"g{len(groups)}")
        log.create_group(
            "s",
            groups[-1],
            start=dice.choice(["beginning", "end", dice.randrange(100)]),
            types=dice.choice([None, None, ["a"], ["b", "c"]]),
            headers=dice.choice([None, None, {"region": "eu"}]),
            ordering=dice.choice([None, "key"]),
        )

    def work() -> None:
        for _ in range(dice.randrange(1, 6)):
            lease = log.claim("s", dice.choice(groups), limit=dice.randrange(5, 30), claimed_by="w", lease_seconds=60)
            if lease is None or dice.random() < 0.1:
                continue
            ids = [event.event_id for event in lease.events]
            dice.shuffle(ids)
            failed, dead, back = (ids[:1], ids[1:2], ids[2:3]) if dice.random() < 0.4 else ([], [], [])
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

    def copy() -> None:
        archive(log, "s", tmp_path / dice.choice("pq"), upto=dice.randrange(log.end() + 20))

    def prune() -> None:
        log.prune("s", upto=dice.randrange(log.end() + 20), keep_dead=dice.random() < 0.5)

    def restore() -> None:
        before = {group: state_by_event(log, "s", group) for group in groups}
        after = dice.choice([0, dice.randrange(log.end() + 1)])
        with suppress(penstock.InFlight, penstock.NotArchived):
            log.restore("s", after=after)
        for group in groups:
            states = state_by_event(log, "s", group)
            assert {one: states[one] for one in before[group]} == before[group], "a restore changed other deliveries"
        there = {one[0]: one for one in everything(log, "s")}
        assert there == {offset: appended[offset] for offset in there}

    append()
    create()
    for _ in range(30):
        dice.choice([append, append, create, work, work, work, operate, copy, prune, restore])()
        clock.advance(dice.choice([0, 1, 40]))
        if dice.random() < 0.5:
            log.reap()
            check_stats(log, clock.now())
    clock.advance(100)
    log.reap()
    copy()
    prune()
    restore()
    check_stats(log, clock.now())
    for group in groups:
        wanted = {one for one, state in state_by_event(log, "s", group).items() if state in ("PENDING", "CLAIMED")}
        seen: set[Any] = set()
        while found := claim_and_settle_all(log, "s", group):
            seen |= set(found)
            clock.advance(100_000)
            log.reap()
        assert seen == wanted, "claims after a restore differ from what was pending"
    check_stats(log, clock.now())

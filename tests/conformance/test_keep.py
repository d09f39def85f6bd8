"""Keep: what is finished is settled, and what still runs goes on in a lease of its own."""

from __future__ import annotations

import pytest

import penstock
from penstock.testing import VirtualClock
from tests.support.log_steps import append_orders


def states(log: penstock.Log) -> list[tuple[str, int, int]]:
    return [(str(one.state), one.attempts, one.total_attempts) for one in log.deliveries("orders", "g")]


@pytest.mark.shows("J14", "K15")
def test_finished_events_are_settled_and_kept_ones_stay_claimed(clocked: penstock.Log, clock: VirtualClock) -> None:
    ids = append_orders(clocked, 6)
    clocked.create_group("orders", "g", lease_seconds=30)
    lease = clocked.claim("orders", "g", limit=5, claimed_by="w")
    assert lease is not None
    claimed_at = clock.now()
    clock.advance(3)
    settled = lease.settle(keep=[ids[1], ids[3]], failed={ids[2]: "no"}, released=[ids[4]])
    assert (settled.published, settled.failed, settled.dead, settled.released) == (1, 1, 0, 1)
    assert [[event.event_id for event in one.events] for one in settled.kept] == [[ids[1]], [ids[3]]]
    assert [one.claimed_by for one in settled.kept] == ["w", "w"]
    assert [one.row.claimed_at for one in settled.kept] == [claimed_at, claimed_at]
    assert len({lease.token, *(one.token for one in settled.kept)}) == 3
    assert states(clocked) == [
        ("PUBLISHED", 1, 1),
        ("CLAIMED", 1, 1),
        ("PENDING", 1, 1),
        ("CLAIMED", 1, 1),
        ("PENDING", 1, 1),
        ("PENDING", 0, 0),
    ]
    assert clocked.stats().groups[0].claimed == 2 and clocked.stats().groups[0].published == 1
    with pytest.raises(penstock.LeaseLost):
        lease.extend()
    clock.advance(29)
    settled.kept[0].extend()
    assert settled.kept[1].settle().published == 1
    clock.advance(29)
    assert settled.kept[0].settle(failed={ids[1]: "late"}).failed == 1
    shown = clocked.delivery("orders", "g", ids[3])
    assert [one.outcome for one in shown.history] == ["claimed", "kept", "published"]
    assert [one.outcome for one in clocked.delivery("orders", "g", ids[1]).history] == ["claimed", "kept", "failed"]
    assert [one.outcome for one in clocked.delivery("orders", "g", ids[0]).history] == ["claimed", "published"]


@pytest.mark.shows("J14", "K15")
def test_the_same_settle_again_returns_the_same_leases(log: penstock.Log) -> None:
    ids = append_orders(log, 3)
    log.create_group("orders", "g")
    lease = log.claim("orders", "g", limit=3, claimed_by="w")
    assert lease is not None
    first, again = lease.settle(keep=[ids[2]]), lease.settle(keep=[ids[2]])
    assert [one.token for one in again.kept] == [one.token for one in first.kept]
    assert [event.event_id for event in again.kept[0].events] == [ids[2]]
    with pytest.raises(penstock.SettleMismatch):
        lease.settle(keep=[ids[1]])
    assert again.kept[0].settle().published == 1
    assert {state for state, _, _ in states(log)} == {"PUBLISHED"}


@pytest.mark.shows("J14", "K16")
def test_kept_events_expire_and_come_back_like_others(clocked: penstock.Log, clock: VirtualClock) -> None:
    ids = append_orders(clocked, 4)
    clocked.create_group("orders", "g", lease_seconds=30, retry=penstock.Retry(base_seconds=0, jitter=0))
    lease = clocked.claim("orders", "g", limit=3, claimed_by="w")
    assert lease is not None
    kept = lease.settle(keep=[ids[0], ids[2]]).kept
    assert kept[1].release().released == 1
    clock.advance(30)
    assert clocked.reap() == 1
    found = []
    while (one := clocked.claim("orders", "g", limit=10, claimed_by="v")) is not None:
        found += [(event.event_id, event.attempts) for event in one.events]
        one.settle()
    assert sorted(found, key=lambda pair: ids.index(pair[0])) == [(ids[0], 2), (ids[2], 2), (ids[3], 1)]
    assert {state for state, _, _ in states(clocked)} == {"PUBLISHED"}


@pytest.mark.shows("J14", "K24")
def test_rewind_and_replay_count_a_kept_event_once(log: penstock.Log) -> None:
    ids = append_orders(log, 2)
    log.create_group("orders", "g")
    lease = log.claim("orders", "g", limit=2, claimed_by="w")
    assert lease is not None
    (kept,) = lease.settle(keep=[ids[0]]).kept
    log.rewind("orders", "g", to="beginning")
    with pytest.raises(penstock.LeaseLost):
        kept.settle()
    again = log.claim("orders", "g", limit=10, claimed_by="w")
    assert again is not None and [event.event_id for event in again.events] == ids
    assert [event.total_attempts for event in again.events] == [2, 2]
    again.settle()
    assert states(log) == [("PUBLISHED", 1, 2), ("PUBLISHED", 1, 2)]


@pytest.mark.shows("J14")
def test_rows_can_be_kept(clocked: penstock.Log, clock: VirtualClock) -> None:
    ids = append_orders(clocked, 3)
    clocked.create_group("orders", "g", lease_seconds=30, retry=penstock.Retry(base_seconds=0, jitter=0))
    lease = clocked.claim("orders", "g", limit=3, claimed_by="w")
    assert lease is not None
    lease.settle(failed=dict.fromkeys(ids, "no"))
    rows = clocked.claim("orders", "g", limit=3, claimed_by="w")
    assert rows is not None and not rows.is_range
    settled = rows.settle(keep=[ids[1]])
    assert settled.published == 2 and states(clocked)[1] == ("CLAIMED", 2, 2)
    (kept,) = settled.kept
    assert [(event.event_id, event.attempts) for event in kept.events] == [(ids[1], 2)]
    clock.advance(31)
    assert clocked.reap() == 1
    last = clocked.claim("orders", "g", limit=3, claimed_by="w")
    assert last is not None and last.settle().published == 1
    outcomes = [one.outcome for one in clocked.delivery("orders", "g", ids[1]).history]
    assert outcomes == ["claimed", "failed", "claimed", "failed", "claimed", "published"]


@pytest.mark.shows("J14")
def test_a_lease_with_keys_keeps_nothing(log: penstock.Log) -> None:
    log.append("orders", {}, type="t", ordering_key="k")
    log.create_group("orders", "g", ordering="key")
    lease = log.claim("orders", "g", limit=3, claimed_by="w")
    assert lease is not None
    with pytest.raises(penstock.KeepNeedsNoKeys):
        lease.settle(keep=[lease.events[0].event_id])
    with pytest.raises(penstock.NotInLease):
        lease.settle(keep=[lease.events[0].event_id], failed={lease.events[0].event_id: "x"})
    assert lease.settle().published == 1


@pytest.mark.shows("J14")
def test_everything_can_be_kept_and_effects_of_others_happen(log: penstock.Log) -> None:
    ids = append_orders(log, 3)
    log.create_group("orders", "g")
    lease = log.claim("orders", "g", limit=3, claimed_by="w")
    assert lease is not None
    done = {ids[0]: {"emit": [{"stream": "out", "type": "t", "payload": 1}]}}
    with pytest.raises(penstock.UnattributedEffect):
        lease.settle(keep=[ids[1]], emit=[{"stream": "out", "type": "t", "payload": 1}])
    settled = lease.settle(keep=ids[1:], effects=done)
    assert settled.published == 1 and len(log.read("out")) == 1
    for one in settled.kept:
        again = one.settle(keep=[one.events[0].event_id])
        assert again.published == 0 and again.kept[0].settle().published == 1
    assert {state for state, _, _ in states(log)} == {"PUBLISHED"}

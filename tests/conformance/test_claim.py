"""Claim: every event once, in order, and never too early."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest

import penstock
from penstock.core import limits
from penstock.core.lanes import bucket_of, lane_of
from penstock.testing import VirtualClock
from tests.support.log_steps import append_orders, claim_and_settle_all, state_by_event
from tests.support.logs import MakeLog
from tests.support.raw_sql import raw


@pytest.mark.shows("K07")
def test_claim_sets_state_time_claimer_and_attempts(clocked: penstock.Log, clock: VirtualClock) -> None:
    ids = append_orders(clocked, 3)
    clocked.create_group("orders", "g")
    clock.advance(5)
    lease = clocked.claim("orders", "g", limit=2, claimed_by="w-1")
    assert lease is not None and [event.event_id for event in lease.events] == ids[:2]
    for event in lease.events:
        assert (event.state, event.attempts, event.claimed_by) == ("CLAIMED", 1, "w-1")
        assert event.claimed_at == clock.now()
        shown = clocked.delivery("orders", "g", event.event_id)
        assert (shown.state, shown.attempts, shown.claimed_by) == ("CLAIMED", 1, "w-1")
        assert shown.claimed_at == clock.now()
    assert clocked.delivery("orders", "g", ids[2]).state == "PENDING"


@pytest.mark.shows("K07")
def test_a_claim_never_exceeds_its_limit(log: penstock.Log) -> None:
    append_orders(log, 5)
    log.create_group("orders", "g")
    assert log.claim("orders", "g", limit=0, claimed_by="w") is None
    lease = log.claim("orders", "g", limit=2, claimed_by="w")
    assert lease is not None and len(lease.events) == 2
    rest = log.claim("orders", "g", limit=100, claimed_by="w")
    assert rest is not None and len(rest.events) == 3
    assert log.claim("orders", "g", limit=100, claimed_by="w") is None
    with pytest.raises(penstock.InvalidInput):
        log.claim("orders", "g", limit=-1, claimed_by="w")


@pytest.mark.shows("K07", "K20")
def test_due_exactly_now_is_claimable_and_not_a_microsecond_earlier(make_log: MakeLog, clock: VirtualClock) -> None:
    log = make_log(clock=clock)
    due = clock.now() + timedelta(seconds=10)
    later = log.append("orders", {}, type="t", available_at=due)
    now = log.append("orders", {}, type="t")
    log.create_group("orders", "g")
    assert claim_and_settle_all(log) == [now.event_id]
    shown = log.delivery("orders", "g", later.event_id)
    assert (shown.state, shown.reason, shown.available_at) == ("PENDING", "delayed", due)
    clock.advance(9.999999)
    restarted = make_log(clock=clock)  # the due time is stored, so another process sees it
    assert restarted.claim("orders", "g", claimed_by="w") is None
    clock.advance(0.000001)
    assert claim_and_settle_all(restarted) == [later.event_id]


@pytest.mark.shows("K07")
def test_only_pending_events_are_claimed(log: penstock.Log) -> None:
    append_orders(log, 4)
    log.create_group("orders", "g", retry=penstock.Retry(max_attempts=1))
    first = log.claim("orders", "g", limit=2, claimed_by="w")
    assert first is not None
    first.settle(failed={first.events[0].event_id: "dead"})
    second = log.claim("orders", "g", limit=100, claimed_by="w")
    assert second is not None and len(second.events) == 2
    assert log.claim("orders", "g", limit=100, claimed_by="w") is None
    assert sorted(state_by_event(log).values()) == ["CLAIMED", "CLAIMED", "DEAD", "PUBLISHED"]


@pytest.mark.shows("K08")
def test_sixteen_claimers_hand_out_every_event_once(make_log: MakeLog, log_url: str) -> None:
    log = make_log()
    total = 100_000
    for _ in range(total // 10_000):
        append_orders(log, 10_000)
    log.create_group("orders", "g")
    handed: list[int] = []
    contents: dict[int, list[int]] = {}
    lock = threading.Lock()

    def work(name: str) -> None:
        own = make_log()
        while (lease := own.claim("orders", "g", limit=997, claimed_by=name)) is not None:
            offsets = [event.offset for event in lease.events]
            lease.settle()
            with lock:
                handed.extend(offsets)
                contents[lease.id] = offsets

    threads = [threading.Thread(target=work, args=(f"w-{n}",)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(handed) == total and len(set(handed)) == total
    with raw(log_url) as sql:
        leases = sql("select id, low, high from penstock.leases order by id")
        highs = [high for _, _, high in leases]
        assert highs == sorted(highs), "a cursor moved backwards"
        for lease_id, low, high in leases[:20]:  # an ended lease still reads the same
            rows = sql(
                'select "offset" from penstock.events where "offset" > %s and "offset" <= %s order by 1', low, high
            )
            assert [row[0] for row in rows] == contents[lease_id]


@pytest.mark.shows("K10")
def test_a_group_starts_at_the_beginning_end_offset_or_time_it_was_given(
    clocked: penstock.Log, clock: VirtualClock
) -> None:
    log = clocked
    first = append_orders(log, 3)
    clock.advance(60)
    middle = clock.now()
    second = append_orders(log, 2)
    log.create_group("orders", "all")
    log.create_group("orders", "new", start="end")
    log.create_group("orders", "offset", start=log.read("orders")[2].offset)
    log.create_group("orders", "time", start=middle)
    third = append_orders(log, 2)
    assert claim_and_settle_all(log, group="all") == first + second + third
    assert claim_and_settle_all(log, group="new") == third
    assert claim_and_settle_all(log, group="offset") == second + third
    assert claim_and_settle_all(log, group="time") == second + third
    late = log.create_group("orders", "late")
    assert late.group_name == "late" and claim_and_settle_all(log, group="late") == first + second + third
    with pytest.raises(penstock.InvalidInput):
        log.create_group("orders", "odd", start="middle")


@pytest.mark.shows("K11")
def test_one_event_three_groups_three_states(log: penstock.Log, log_url: str) -> None:
    (one,) = append_orders(log, 1)
    for group in ("a", "b", "c"):
        log.create_group("orders", group, retry=penstock.Retry(max_attempts=1))
    a = log.claim("orders", "a", claimed_by="w")
    assert a is not None
    a.settle(failed={one: "broken"})
    assert claim_and_settle_all(log, group="b") == [one]
    with raw(log_url) as sql:
        rows = sql("select group_name, state from penstock.delivery where event_id = %s order by group_name", one)
        assert rows == [("a", "DEAD"), ("b", "PUBLISHED"), ("c", "PENDING")]


@pytest.mark.shows("K19")
def test_without_order_or_key_a_failing_event_delays_nobody(log: penstock.Log) -> None:
    keyed = append_orders(log, 3, ordering_key="k")
    log.create_group("orders", "g")
    log.create_group("orders", "ordered", ordering="key")
    lease = log.claim("orders", "g", limit=3, claimed_by="w")
    assert lease is not None
    assert lease.settle(failed={keyed[0]: "no"}) == penstock.Settled(2, 1, 0, 0)
    keyless = append_orders(log, 3, stream="free")
    log.create_group("free", "ordered", ordering="key", lanes=1)
    lease = log.claim("free", "ordered", limit=3, claimed_by="w")
    assert lease is not None and [event.event_id for event in lease.events] == keyless
    assert lease.settle(failed={keyless[0]: "no"}) == penstock.Settled(2, 1, 0, 0)


@pytest.mark.shows("K20")
def test_a_delayed_event_is_never_early_on_the_databases_own_time(log: penstock.Log) -> None:
    from datetime import UTC, datetime

    due = datetime.now(UTC) + timedelta(seconds=1)
    log.append("orders", {}, type="t", available_at=due)
    log.create_group("orders", "g")
    deadline = time.monotonic() + 30
    while (lease := log.claim("orders", "g", claimed_by="w")) is None:
        assert time.monotonic() < deadline
    assert lease.events[0].claimed_at is not None and lease.events[0].claimed_at >= due


@pytest.mark.shows("K21")
def test_patterns_and_headers_filter_what_a_group_gets(log: penstock.Log) -> None:
    types = ["order.created", "order.line.added", "order", "invoice.created", "orders.created"]
    ids = {kind: log.append("orders", {}, type=kind).event_id for kind in types}
    eu = log.append("orders", {}, type="order.paid", headers={"tenant": "eu", "x": "1"}).event_id
    us = log.append("orders", {}, type="order.paid", headers={"tenant": "us"}).event_id
    wanted = {
        ("order.*",): [ids["order.created"], eu, us],
        ("order.>",): [ids["order.created"], ids["order.line.added"], eu, us],
        ("*.created",): [ids["order.created"], ids["invoice.created"], ids["orders.created"]],
        ("order", "invoice.*"): [ids["order"], ids["invoice.created"]],
        ("*.line.>",): [ids["order.line.added"]],
    }
    for number, (patterns, expected) in enumerate(wanted.items()):
        log.create_group("orders", f"g{number}", types=list(patterns))
        assert claim_and_settle_all(log, group=f"g{number}") == expected, patterns
        assert [one.event_id for one in log.deliveries("orders", f"g{number}")] == expected
    log.create_group("orders", "eu", headers={"tenant": "eu"})
    assert claim_and_settle_all(log, group="eu") == [eu]
    for odd in ("order.>.x", "", "a b", ">>", "order..x"):
        with pytest.raises(penstock.InvalidInput):
            log.create_group("orders", "odd", types=[odd])


@pytest.mark.shows("K21")
def test_a_changed_binding_applies_to_later_events_only(log: penstock.Log) -> None:
    before = [log.append("orders", {}, type=kind).event_id for kind in ("a", "b", "a")]
    log.create_group("orders", "g", types=["a"])
    lease = log.claim("orders", "g", limit=1, claimed_by="w")
    assert lease is not None
    lease.settle()
    log.bind("orders", "g", types=["b"])
    after = [log.append("orders", {}, type=kind).event_id for kind in ("a", "b")]
    assert claim_and_settle_all(log) == [before[2], after[1]], "the old binding still applies to earlier events"
    shown = {one.event_id for one in log.deliveries("orders", "g")}
    assert shown == {before[0], before[2], after[1]}


@pytest.mark.shows("K21")
def test_a_rare_match_is_found_in_bounded_steps(log: penstock.Log) -> None:
    from penstock.core import limits
    from penstock.core.lease import Passed
    from penstock.log import claim

    for _ in range(6):
        log.append_many("orders", [{"payload": {}, "type": "noise"}] * 20_000)
    wanted = log.append("orders", {}, type="signal").event_id
    log.create_group("orders", "g", types=["signal"])
    steps = 0
    while True:
        with log.store.transaction() as tx:
            found = claim.claim_in(tx, "orders", "g", 100, "w")
        if not isinstance(found, Passed):
            break
        steps += 1
    assert steps == 120_000 // limits.SCAN_FILTERED, "one claim scans no more than its limit"
    assert not isinstance(found, penstock.Lease) and found.members == 1  # type: ignore[union-attr]
    assert log.delivery("orders", "g", wanted).state == "CLAIMED"


@pytest.mark.shows("K28")
def test_a_failure_below_a_later_success_is_still_retried(clocked: penstock.Log, clock: VirtualClock) -> None:
    ids = append_orders(clocked, 12)
    clocked.create_group("orders", "g", retry=penstock.Retry(jitter=0))
    first = clocked.claim("orders", "g", limit=5, claimed_by="w")
    assert first is not None
    first.settle(failed={ids[1]: "once"})
    assert claim_and_settle_all(clocked) == ids[5:], "later events wait for the failure"
    assert clocked.delivery("orders", "g", ids[1]).state == "PENDING"
    clock.advance(2)
    assert claim_and_settle_all(clocked) == [ids[1]]


@pytest.mark.shows("K28")
def test_a_few_due_retries_wait_behind_ranges_for_at_most_a_second(clocked: penstock.Log, clock: VirtualClock) -> None:
    ids = append_orders(clocked, 12)
    clocked.create_group("orders", "g", retry=penstock.Retry(base_seconds=0))

    def claim(limit: int = 3) -> list[str]:
        lease = clocked.claim("orders", "g", limit=limit, claimed_by="w")
        assert lease is not None
        lease.settle(failed={ids[1]: "again"} if ids[0] in [event.event_id for event in lease.events] else {})
        return [event.event_id for event in lease.events]

    assert claim() == ids[:3]
    assert claim() == ids[3:6], "a row that does not fill a lease must wait"
    clock.advance(limits.ROWS_WAIT_SECONDS)
    assert claim() == [ids[1]], "the row waits no longer than a second"
    assert claim() == ids[6:9]
    redriven = clocked.replay("orders", "g", event_ids=ids[3:6])
    assert redriven.count == 3 and claim() == ids[3:6], "a full lease of rows does not wait"
    assert claim() == ids[9:]


@pytest.mark.shows("K26")
def test_pause_keeps_leases_and_hands_out_nothing_new(log: penstock.Log) -> None:
    append_orders(log, 4)
    log.create_group("orders", "g")
    lease = log.claim("orders", "g", limit=2, claimed_by="w")
    assert lease is not None
    log.pause("orders", "g", reason="maintenance")
    assert log.claim("orders", "g", claimed_by="w") is None
    (shown,) = log.stats().groups
    assert (shown.paused, shown.pause_reason) == (True, "maintenance")
    lease.extend()
    assert lease.settle().published == 2
    log.resume("orders", "g")
    assert len(claim_and_settle_all(log)) == 2


@pytest.mark.shows("K07")
def test_the_few_events_of_a_lane_are_found_after_many_of_other_lanes(log: penstock.Log) -> None:
    busy, thin = "a", next(key for key in "bcdefgh" if lane_of(bucket_of(key), 8) != lane_of(bucket_of("a"), 8))
    log.append_many("orders", [{"payload": b"{}", "type": "t", "ordering_key": busy}] * (limits.SCAN + 5_000))
    last = log.append("orders", {}, type="t", ordering_key=thin)
    log.create_group("orders", "g", ordering="key", lanes=8)
    found = [log.claim("orders", "g", limit=10, claimed_by="w") for _ in range(2)]
    assert [[event.ordering_key for event in lease.events] for lease in found if lease] == [[busy] * 10, [thin]]
    assert found[1] is not None and found[1].events[0].event_id == last.event_id
    assert log.claim("orders", "g", limit=10, claimed_by="w") is None


@pytest.mark.shows("K26")
def test_ten_workers_killed_on_one_event_each_pause_the_group(clocked: penstock.Log, clock: VirtualClock) -> None:
    """A lease of one event that expires counts as a death; a success resets the count."""
    append_orders(clocked, 30)
    clocked.create_group("orders", "g", retry=penstock.Retry(max_attempts=9, base_seconds=10_000))

    def die(times: int) -> None:
        for _ in range(times):
            assert clocked.claim("orders", "g", limit=1, claimed_by="w") is not None
            clock.advance(61)

    die(9)
    lease = clocked.claim("orders", "g", limit=1, claimed_by="w")
    assert lease is not None and lease.settle().published == 1
    die(9)
    clocked.reap()
    assert not clocked.groups("orders")[0].paused, "nine deaths, a success, nine deaths"
    die(1)
    assert clocked.claim("orders", "g", limit=1, claimed_by="w") is None
    (group,) = clocked.groups("orders")
    assert group.paused and str(group.pause_reason).startswith("crash_loop: 10 events in a row")
    clocked.resume("orders", "g")
    die(1)
    assert clocked.claim("orders", "g", limit=1, claimed_by="w") is not None, "the count starts again"


@pytest.mark.shows("K26", "K44")
def test_leases_that_were_lost_together_are_one_death(clocked: penstock.Log, clock: VirtualClock) -> None:
    """Twelve leases lost at once do not pause the group; twelve lost one after the other do."""
    log = clocked
    append_orders(log, 40)
    log.create_group("orders", "g", lease_seconds=30, retry=penstock.Retry(max_attempts=9, base_seconds=10_000))
    held = []
    for _ in range(12):
        held.append(log.claim("orders", "g", limit=1, claimed_by="w"))
        clock.advance(1)
    clock.advance(31)
    log.reap()
    (group,) = log.groups("orders")
    assert not group.paused and None not in held
    for _ in range(8):
        assert log.claim("orders", "g", limit=1, claimed_by="w") is not None
        clock.advance(31)
        log.reap()
    assert not log.groups("orders")[0].paused, "nine deaths"
    assert log.claim("orders", "g", limit=1, claimed_by="w") is not None
    clock.advance(31)
    log.reap()
    assert log.groups("orders")[0].paused

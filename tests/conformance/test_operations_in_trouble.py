"""Operations that somebody starts twice, that find nothing for long, or that cannot be done."""

from __future__ import annotations

from typing import Any

import pytest

import penstock
from penstock.errors import InvalidInput, PlanOutdated, TooLarge
from penstock.log.operations import batches
from penstock.log.operations.plan import Plan
from penstock.testing import VirtualClock
from tests.support.log_steps import claim_and_settle_all
from tests.support.raw_sql import raw

RETRY = penstock.Retry(max_attempts=1)


@pytest.mark.shows("O04")
def test_the_canaries_of_a_replay_are_found_however_far_they_are(
    clocked: penstock.Log, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step of a replay examines a part of the log: a part without matches is no reason to go on without canaries."""
    log = clocked
    for name, value in {"_WINDOW": 4, "_WIDEST": 4, "_WINDOWS": 2}.items():
        monkeypatch.setattr(batches, name, value)
    log.create_group("orders", "g", retry=RETRY)
    rare = {30, 45, 46, 47}
    log.append_many("orders", [{"payload": {}, "type": "b" if n in rare else "a"} for n in range(60)])
    claim_and_settle_all(log, "orders", "g")
    operation = log.operation("replay", "orders", "g", type="b", canary=2).start()
    for _ in range(3):
        log.run_operations()
        clock.advance(2)
    assert (operation.refresh().moved, operation.info.canaries_moved) == (2, 2)
    claim_and_settle_all(log, "orders", "g")
    log.run_operations()
    assert (operation.refresh().moved, operation.info.state) == (4, "done")


@pytest.mark.shows("O04", "K24")
@pytest.mark.parametrize(("kind", "which"), [("replay", {"all": True}), ("rewind", {"to": "beginning"})])
def test_a_plan_that_two_people_start_is_done_once(
    clocked: penstock.Log, clock: VirtualClock, kind: str, which: dict[str, Any]
) -> None:
    """Whether the first one has ended by then or not; who plans again may do it again."""
    log = clocked
    log.create_group("orders", "g", retry=RETRY)
    log.append_many("orders", [{"payload": {}, "type": "a"}] * 6)
    claim_and_settle_all(log, "orders", "g")
    operations = [log.operation(kind, "orders", "g", **which) for _ in range(3)]
    plan = operations[0].plan()
    clock.advance(1)
    operations[0].start(plan)
    with pytest.raises(PlanOutdated, match="Operation 1 does the same, and has not ended"):
        operations[1].start(plan)
    log.run_operations()
    assert len(claim_and_settle_all(log, "orders", "g")) == 6
    with pytest.raises(PlanOutdated, match="Operation 1 was started after this plan was made"):
        operations[1].start(plan)
    log.run_operations()
    assert len(claim_and_settle_all(log, "orders", "g")) == 0
    clock.advance(1)
    operations[2].start(operations[2].plan())
    log.run_operations()
    assert len(claim_and_settle_all(log, "orders", "g")) == 6


@pytest.mark.shows("O04")
def test_one_that_cannot_be_done_does_not_hold_up_the_others(clocked: penstock.Log, clock: VirtualClock) -> None:
    log = clocked
    for group in ("g", "h"):
        log.create_group("orders", group, retry=RETRY)
    log.append("orders", {}, type="a")
    for group in ("g", "h"):
        lease = log.claim("orders", group, claimed_by="w")
        assert lease is not None
        lease.settle(dead={event.event_id: "no" for event in lease.events})
    bad = log.operation("redrive", "orders", "g", all=True).start()
    clock.advance(1)
    good = log.operation("redrive", "orders", "h", all=True).start()
    with raw(log.store.url) as sql:
        sql(f'update penstock.operations set filter = \'{{"since":"once"}}\' where id = {bad.id}')
    with pytest.raises(ValueError, match="once"):
        log.run_operations()
    assert "The last step failed: Invalid isoformat" in (bad.refresh().waits_for or "")
    log.run_operations()
    assert (good.refresh().state, bad.refresh().state) == ("done", "running")
    bad.abort()


@pytest.mark.shows("O04", "O14")
def test_plans_and_notes_that_make_no_sense_are_refused(clocked: penstock.Log, clock: VirtualClock) -> None:
    log, now = clocked, clock.now()
    log.create_group("orders", "g", retry=RETRY)
    naive = now.replace(tzinfo=None)
    plans: list[tuple[str, Any]] = [
        ("redrive", Plan(now, 0, naive)),
        ("redrive", Plan(naive, 0, now)),
        ("replay", Plan(True, 0, now)),
        ("replay", Plan(-1, 0, now)),
    ]
    for kind, plan in plans:
        with pytest.raises(InvalidInput):
            log.operation(kind, "orders", "g", all=True).start(plan)
    with pytest.raises(InvalidInput, match="muted"):
        log.note_fingerprint("orders", "g", "f", muted="no")  # type: ignore[arg-type]
    with pytest.raises(TooLarge, match="fingerprint"):
        log.note_fingerprint("orders", "g", "f" * 10_000, note="n")


@pytest.mark.shows("O04", "O05")
def test_a_clock_that_was_set_back_stops_neither_operations_nor_policies(
    clocked: penstock.Log, clock: VirtualClock
) -> None:
    log = clocked
    log.create_group("orders", "g", retry=RETRY)
    log.append_many("orders", [{"payload": {}, "type": "a"}] * 6)
    claim_and_settle_all(log, "orders", "g")
    clock.advance(86_400)
    log.set_retention("orders", keep=30 * 86_400)
    log.apply_retention()
    operation = log.operation("replay", "orders", "g", all=True, rate_per_second=1).start()
    log.run_operations()
    clock.advance(-80_000)
    for _ in range(10):
        clock.advance(1)
        log.run_operations()
    assert (operation.refresh().moved, operation.info.state) == (6, "done")
    claim_and_settle_all(log, "orders", "g")
    with raw(log.store.url) as sql:
        sql("update penstock.retention set keep = 60")
    assert log.apply_retention().events == 6

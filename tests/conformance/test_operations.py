"""Operations on many: plans, canaries, rates, stops, and what pause, abort and lost runners do to them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import penstock
from penstock.errors import (
    FilterNeeded,
    InvalidInput,
    OperationEnded,
    OperationOption,
    PlanOutdated,
    UnknownOperation,
)
from penstock.log.operations.step import Stepped, step
from penstock.testing import VirtualClock
from tests.support.log_steps import claim_and_settle_all
from tests.support.raw_sql import raw

RETRY = penstock.Retry(max_attempts=1)


def bury(log: penstock.Log, count: int, *, error: str = "KeyError: boom", group: str = "g", **settings: Any) -> None:
    """A group with so many dead letters."""
    log.create_group("orders", group, retry=RETRY, **settings)
    log.append_many("orders", [{"payload": {"n": n}, "type": "order.created"} for n in range(count)])
    bury_all(log, error, group)


def bury_all(log: penstock.Log, error: str, group: str = "g") -> int:
    """Let everything that is due die; returns how many did."""
    died = 0
    while (lease := log.claim("orders", group, claimed_by="w")) is not None:
        died += len(lease.events)
        lease.settle(dead={event.event_id: error for event in lease.events})
    return died


def dead(log: penstock.Log, group: str = "g") -> int:
    return len(log.deliveries("orders", group, state="DEAD"))


@pytest.mark.shows("O04")
def test_a_redrive_goes_by_canary_and_rate_and_ends(clocked: penstock.Log, clock: VirtualClock) -> None:
    log = clocked
    bury(log, 30)
    operation = log.operation("redrive", "orders", "g", error="KeyError", canary=3, rate_per_second=10, by="ann")
    plan = operation.plan()
    assert (plan.count, plan.exact, plan.halted_keys_count, operation.id) == (30, True, 0, None)
    operation.start(plan)
    assert not log.run_operations()
    assert operation.refresh().waits_for == "3 canaries were moved."
    clock.advance(5)
    log.run_operations()
    assert operation.progress.moved == 3, "it waits for the canaries' outcomes, however long"
    claim_and_settle_all(log, "orders", "g")
    moved = []
    for _ in range(6):
        clock.advance(1)
        log.run_operations()
        moved.append(operation.refresh().moved)
    assert moved == [3, 13, 23, 30, 30, 30]
    assert (operation.info.state, operation.info.canaries_ended, operation.info.returned) == ("done", 3, 0)
    with raw(log.store.url) as sql:
        audit = sql("select action, by, count from penstock.audit order by id")
    assert [(one[0], one[1], one[2]) for one in audit] == [
        ("operation_start", "ann", 30),
        ("operation_done", "ann", 30),
    ]


@pytest.mark.shows("O04")
def test_it_stops_when_the_error_comes_back(clocked: penstock.Log, clock: VirtualClock) -> None:
    log = clocked
    bury(log, 20)
    operation = log.operation("redrive", "orders", "g", all=True, canary=4, stop_on_return=2).start()
    log.run_operations()
    assert bury_all(log, "ValueError: another one") == 4
    clock.advance(1)
    assert log.operation("redrive", "orders", "g", error="ValueError").plan().count == 4
    log.run_operations()
    assert (operation.refresh().state, operation.info.returned) == ("done", 0), "another error is not the one it had"
    assert bury_all(log, "KeyError: boom") == 16
    again = log.operation("redrive", "orders", "g", error="KeyError", canary=4, stop_on_return=2).start()
    log.run_operations()
    assert bury_all(log, "KeyError: boom") == 4
    clock.advance(1)
    assert not log.run_operations()
    info = again.refresh()
    assert (info.state, info.moved, info.returned) == ("stopped", 4, 4)
    assert info.stop_reason == "4 of 4 came back with the error they had."
    assert dead(log) == 20


def test_later_deaths_are_not_part_of_it(clocked: penstock.Log, clock: VirtualClock) -> None:
    log = clocked
    bury(log, 5)
    operation = log.operation("redrive", "orders", "g", all=True)
    plan = operation.plan()
    clock.advance(1)
    log.append("orders", {}, type="order.created")
    assert bury_all(log, "KeyError: boom") == 1
    info = operation.start(plan).run(timeout=5)
    assert (info.state, info.moved, dead(log)) == ("done", 5, 1)
    assert bury_all(log, "KeyError: boom") == 5
    clock.advance(1)
    log.run_operations()
    assert dead(log) == 6, "what it has moved is not moved again"


@pytest.mark.shows("O04")
def test_a_plan_that_is_out_of_date_is_refused(clocked: penstock.Log, clock: VirtualClock) -> None:
    log = clocked
    bury(log, 5)
    operation = log.operation("redrive", "orders", "g", all=True)
    old = operation.plan()
    clock.advance(601)
    with pytest.raises(PlanOutdated, match="601 seconds old") as told:
        operation.start(old)
    assert told.value.code == "plan_outdated" and "plan again" in told.value.hint
    plan = operation.plan()
    log.redrive("orders", "g", event_ids=[log.read("orders")[0].event_id])
    with pytest.raises(PlanOutdated, match="found 5 deliveries, and now there are 4"):
        operation.start(plan)
    assert log.operations() == []
    replay = log.operation("replay", "orders", "g", all=True)
    claim_and_settle_all(log, "orders", "g")
    plan = replay.plan()
    assert (plan.count, plan.cutoff) == (1, 5)
    log.redrive("orders", "g", all=True)
    claim_and_settle_all(log, "orders", "g")
    with pytest.raises(PlanOutdated):
        replay.start(plan)


def test_a_replay_moves_each_once_and_stops_at_failures(clocked: penstock.Log, clock: VirtualClock) -> None:
    log = clocked
    log.create_group("orders", "g", retry=RETRY)
    log.append_many("orders", [{"payload": {"n": n}, "type": "t"} for n in range(12)])
    claim_and_settle_all(log, "orders", "g")
    operation = log.operation("replay", "orders", "g", all=True, canary=2, stop_on_return=1).start()
    log.append("orders", {}, type="t")
    log.run_operations()
    clock.advance(1)
    assert operation.refresh().moved == 2
    claim_and_settle_all(log, "orders", "g")
    log.run_operations()
    assert (operation.refresh().state, operation.info.moved, operation.info.planned) == ("done", 12, 12)
    claim_and_settle_all(log, "orders", "g")
    again = log.operation("replay", "orders", "g", type="t", canary=2, stop_on_return=1).start()
    log.run_operations()
    bury_all(log, "no")
    clock.advance(1)
    log.run_operations()
    assert (again.refresh().state, again.info.stop_reason) == ("stopped", "2 of 2 failed.")


def test_a_rewind_is_planned_and_done_in_one_step(log: penstock.Log) -> None:
    log.create_group("orders", "g")
    log.append_many("orders", [{"payload": {"n": n}, "type": "t"} for n in range(12)])
    claim_and_settle_all(log, "orders", "g")
    operation = log.operation("rewind", "orders", "g", to=4)
    plan = operation.plan()
    assert (plan.count, plan.target, plan.cutoff) == (8, 4, 12)
    info = operation.start(plan).run(timeout=5)
    assert (info.state, info.moved) == ("done", 8)
    assert log.stats("orders", "g").groups[0].pending == 8
    for options in ({"canary": 1}, {"rate_per_second": 1}, {"stop_on_return": 1}):
        with pytest.raises(OperationOption):
            log.operation("rewind", "orders", "g", to=4, **options)
    with pytest.raises(InvalidInput, match="needs `to`"):
        log.operation("rewind", "orders", "g")


def test_pause_resume_and_abort(clocked: penstock.Log, clock: VirtualClock) -> None:
    log = clocked
    bury(log, 30)
    operation = log.operation("redrive", "orders", "g", all=True, rate_per_second=10).start()
    other = log.get_operation(operation.id or 0)
    log.run_operations()
    clock.advance(1)
    log.run_operations()
    assert other.pause(by="bob").moved == 10
    clock.advance(60)
    assert not log.run_operations() and operation.refresh().moved == 10
    operation.resume()
    log.run_operations()
    assert operation.refresh().moved == 10, "a pause is not made up for"
    clock.advance(1)
    log.run_operations()
    assert operation.refresh().moved == 20
    clock.advance(60)
    log.run_operations()
    assert operation.refresh().moved == 30 or operation.info.moved == 20 + 10
    second = log.operation("purge", "orders", "g", all=True).plan()
    assert second.count == 0
    bury_all(log, "KeyError: boom")
    last = log.operation("redrive", "orders", "g", all=True).start()
    assert last.abort(by="ann").stop_reason == "aborted by ann"
    assert not log.run_operations() and dead(log) == 30
    with pytest.raises(OperationEnded):
        last.resume()
    with pytest.raises(UnknownOperation):
        log.get_operation(99)


def test_a_crash_makes_no_burst(clocked: penstock.Log, clock: VirtualClock) -> None:
    log = clocked
    bury(log, 100)
    operation = log.operation("redrive", "orders", "g", all=True, rate_per_second=10).start()
    log.run_operations()
    clock.advance(3600)
    log.run_operations()
    assert operation.refresh().moved == 20, "two seconds' worth, not an hour's"


def test_only_the_last_runner_moves_anything(log: penstock.Log) -> None:
    bury(log, 10)
    operation = log.operation("redrive", "orders", "g", all=True).start()
    number = operation.id or 0
    with log.store.transaction() as tx:
        hour = {"latest": tx.now() + timedelta(hours=1)}
        taken = {"id": number, "now": tx.now(), "expires_at": tx.now() + timedelta(seconds=30), **hour}
        first = tx.one("operation.take", me="one", **taken)
        assert first is not None and tx.one("operation.take", me="two", **taken) is None
        assert tx.one("operation.due", now=tx.now(), me="two", **hour) is None
    assert not log.run_operations() and operation.refresh().held_by == "one"
    with log.store.transaction() as tx:
        later = {**taken, "now": taken["expires_at"], "expires_at": taken["expires_at"] + timedelta(seconds=30)}
        second = tx.one("operation.take", me="two", **later)
        assert second is not None
    with log.store.transaction() as tx:
        assert step(tx, number, first.token) is Stepped.ENDED
    assert operation.refresh().moved == 0
    with log.store.transaction() as tx:
        assert step(tx, number, second.token, most=4) is Stepped.MORE
    assert operation.refresh().moved == 4


def test_a_paused_or_deleted_group_is_said(clocked: penstock.Log, clock: VirtualClock) -> None:
    log = clocked
    bury(log, 5)
    operation = log.operation("redrive", "orders", "g", all=True, rate_per_second=100).start()
    log.pause("orders", "g", reason="deploying")
    log.run_operations()
    assert operation.refresh().waits_for == "The group is paused: deploying."
    plain = log.operation("purge", "orders", "g", all=True, rate_per_second=1_000).start()
    clock.advance(1)
    log.run_operations()
    clock.advance(1)
    log.run_operations()
    assert plain.refresh().state == "done"
    log.delete_group("orders", "g")
    log.create_group("orders", "g")
    clock.advance(1)
    log.run_operations()
    assert (operation.refresh().state, operation.info.stop_reason) == ("failed", "The group 'g' was deleted.")


def test_options_that_make_no_sense_are_refused(log: penstock.Log) -> None:
    log.create_group("orders", "g")
    for options in ({"canary": 1}, {"stop_on_return": 1}):
        with pytest.raises(OperationOption):
            log.operation("purge", "orders", "g", all=True, **options)
    with pytest.raises(FilterNeeded):
        log.operation("redrive", "orders", "g")
    for wrong in ({"canary": 0}, {"canary": 1_001}, {"rate_per_second": 0}, {"stop_on_return": True}):
        with pytest.raises(InvalidInput):
            log.operation("redrive", "orders", "g", all=True, **wrong)
    with pytest.raises(InvalidInput, match="one of redrive, replay"):
        log.operation("kill", "orders", "g", all=True)
    with pytest.raises(InvalidInput):
        log.operation("replay", "orders", "g", error="x")
    with pytest.raises(InvalidInput):
        log.operations(state="odd")

"""Deaths, time-outs and failures in any order: effects happen once and in order, and every call has its own attempt."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.engine.handlers.state import LeaseState
from penstock.engine.heartbeat import Heartbeat
from penstock.engine.isolation.supervised import Supervised
from penstock.engine.local.engine import LocalEngine
from penstock.engine.settlement import LeaseSettlement
from penstock.engine.work import Work
from penstock.testing import VirtualClock
from tests.support.children import handlers, slow_to_load
from tests.support.declarations import SIX_ATTEMPTS, subscription
from tests.support.done_table import create_done_table, done_offsets
from tests.support.local_engine import run_local_until_drained
from tests.support.log_steps import append_orders, claim_lease
from tests.support.logs import MakeLog
from tests.support.scripted_events import (
    append_scripts,
    assert_each_call_has_its_own_attempt,
    check_random_deaths,
    emitted_offsets,
)


@pytest.mark.shows("K45", "K46", "K43")
@pytest.mark.parametrize("end", ["exit", "hang"])
@pytest.mark.parametrize("handler", [handlers.scripted, handlers.scripted_state])
def test_effects_happen_once_after_a_death_and_a_failure_of_an_earlier_event(
    log: penstock.Log, log_url: str, notes: Path, end: str, handler: Any
) -> None:
    """Five events of one key: the fourth ends its process, and on the next attempt the first one raises."""
    create_done_table(log_url)
    append_scripts(log, [{"2": "raise"}, {}, {}, {"1": end}, {}], lambda n: "k")
    run_local_until_drained(log, subscription(handler, ordering="key", lanes=1, retry=SIX_ATTEMPTS, timeout_seconds=1))
    assert {str(one.state) for one in log.deliveries("orders", "g")} == {"PUBLISHED"}
    if handler is handlers.scripted:
        assert done_offsets(log_url) == [1, 2, 3, 4, 5]
    assert emitted_offsets(log) == [1, 2, 3, 4, 5]
    assert log.state("orders", "g", "k")["seen"] == [1, 2, 3, 4, 5]
    assert_each_call_has_its_own_attempt(notes)
    assert [log.delivery("orders", "g", n).failures for n in range(1, 6)] == [1, 0, 0, 1, 0]


@pytest.mark.shows("K45", "K46")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(4))
def test_random_deaths_and_failures_leave_effects_once_and_in_order(
    log: penstock.Log, log_url: str, notes: Path, seed: int
) -> None:
    create_done_table(log_url)
    check_random_deaths(log, log_url, notes, seed, events=24)


@pytest.mark.shows("K45")
@pytest.mark.parametrize("why", ["failed", "dead", "released", "tail", "behind", "sql"])
def test_a_settle_refuses_effects_that_belong_to_no_successful_event(log: penstock.Log, why: str) -> None:
    log.create_group("orders", "g", ordering="key", lanes=1)
    first, second, third = append_orders(log, 3, ordering_key="k")
    lease = claim_lease(log)
    said: dict[str, dict[str, Any]] = {
        "failed": {"failed": {second: "no"}},
        "dead": {"dead": {second: "no"}},
        "released": {"released": [second]},
        "tail": {"released": [third]},
        "behind": {"failed": {first: "no"}},
        "sql": {"effects": {first: {"execute": [("insert into nowhere values (?)", [1])]}}},
    }
    out = [{"stream": "out", "payload": {}, "type": "t"}]
    for lump in ({"emit": out}, {"state": {"k": {"n": 1}}}, {"execute": [("select 1", [])]}):
        if why == "sql" and "execute" in lump:
            continue
        with pytest.raises(penstock.UnattributedEffect):
            lease.settle(**said[why], **lump)
    assert log.read("out") == [] and log.state("orders", "g", "k") == {}
    assert lease.settle(emit=out, state={"k": {"n": 1}}).published == 3, "the lease is still held"
    assert len(log.read("out")) == 1


@pytest.mark.shows("K46")
def test_chunks_halve_with_every_death_and_double_with_every_success(log: penstock.Log, notes: Path) -> None:
    """A lease in one child ends with the child's death; earlier reports are kept."""
    append_scripts(log, [{"1": "exit"} if n == 12 else {} for n in range(20)], lambda n: "k")
    one = subscription(handlers.scripted_state, lanes=1)
    log.create_group("orders", "g", keyed=True, lanes=1)
    isolated = Supervised(one)
    isolated.chunk = 8
    try:
        lease = claim_lease(log, limit=100)
        work = Work(lease.events, lease.token, isolated.marks)
        isolated.run(work)
        assert isolated.chunk == 3, "seven events in the reported chunk, seven in the lost one"
        assert sorted(work.failed) == [12] and work.deaths == 1
        assert work.writers == {"k": list(range(7))} and [place for place, _ in work.emit] == list(range(7))
        work.finish()
        assert work.unfinished() == [*range(7, 12)] and work.touched() == 13
        LeaseSettlement(lease, work).settle()
        again = claim_lease(log)
        assert [event.offset for event in again.events] == [*range(8, 13), *range(14, 21)]
        assert {event.attempts for event in again.events} == {2} and again.is_range
        work = Work(again.events, again.token, isolated.marks, LeaseState(again.state()))
        isolated.run(work)
        assert not work.unfinished() and work.touched() == 12
        assert isolated.chunk == 24, "chunks of three, three and six"
    finally:
        isolated.stop()


@pytest.mark.shows("K43")
def test_the_time_of_a_lease_begins_with_its_first_event(
    log: penstock.Log, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The app takes far longer to load than a lease lasts, and every child is new."""
    monkeypatch.setenv("PENSTOCK_LOADS", "1.0")
    append_scripts(log, [{"1": "exit", "2": "exit"} if n == 1 else {} for n in range(4)], lambda n: None)
    one = subscription(slow_to_load.handle, retry=SIX_ATTEMPTS, batch_seconds=0.05, lease_seconds=3)
    run_local_until_drained(log, one)
    shown = log.deliveries("orders", "g")
    assert {str(one.state) for one in shown} == {"PUBLISHED"}
    assert log.delivery("orders", "g", 2).attempts == 3
    assert_each_call_has_its_own_attempt(notes)


@pytest.mark.shows("K43")
def test_three_engines_finish_although_loading_takes_longer_than_a_lease(
    make_log: MakeLog, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that hung once, rows of a lost lease, and a row lost alone all end after a few attempts."""
    monkeypatch.setenv("PENSTOCK_LOADS", "3.5")
    log = make_log()
    log.create_group("orders", "g", retry=SIX_ATTEMPTS, lease_seconds=30)
    append_scripts(log, [{"1": "hang"} if n in (60, 61) else {} for n in range(90)], lambda n: None)
    lost_alone = log.claim("orders", "g", limit=1, claimed_by="killed", lease_seconds=0.2)
    assert lost_alone is not None
    lease = claim_lease(log, limit=40)
    lease.settle(failed={event: "no" for event in lease.events})
    lost = log.claim("orders", "g", limit=40, claimed_by="killed", lease_seconds=0.2)
    assert lost is not None and not lost.is_range and len(lost) == 40
    policy = {"retry": SIX_ATTEMPTS, "batch_seconds": 2, "lease_seconds": 30, "timeout_seconds": 1}
    engines = [
        LocalEngine(make_log(), [subscription(slow_to_load.handle, **policy)], until_drained=True) for _ in range(3)
    ]
    for engine in engines:
        engine.start()
    try:
        for engine in engines:
            assert engine.wait(60), f"still working: {engine.snapshot()}"
    finally:
        for engine in engines:
            engine.stop()
    shown = log.deliveries("orders", "g", limit=100)
    assert {str(one.state) for one in shown} == {"PUBLISHED"} and len(shown) == 90
    assert max(one.attempts for one in shown) <= 5, "attempts beyond the planned losses, failures and hangs"
    assert sum(engine.snapshot()["orders/g"]["leases"] for engine in engines) <= 60
    assert_each_call_has_its_own_attempt(notes)


@pytest.mark.shows("K43")
def test_a_lease_does_not_run_out_of_time_before_it_began(log: penstock.Log) -> None:
    append_orders(log, 2)
    log.create_group("orders", "g")
    lease = claim_lease(log)
    isolated = Supervised(subscription(handlers.plain))
    try:
        watch = Heartbeat()
        watch.keep(lease, 60)
        one = watch._watched[lease.id]
        Work(lease.events, lease.token, isolated.marks)
        with watch.limit(lease, isolated.marks, 1.0, None):
            watch._look(one, now=1e9)
            assert isolated.marks.stop[0] == 0 and one.stop_at is None
            isolated.marks.slots[0] = 1
            watch._look(one, now=2e9)
            assert isolated.marks.stop[0] == 0 and one.stop_at == 2e9 + 1.0
            watch._look(one, now=2e9 + 1.0)
            assert isolated.marks.stop[0] == 1
    finally:
        isolated.stop()


@pytest.mark.shows("K44")
def test_rows_of_a_lost_lease_are_retried_in_few_leases_and_one_process(
    clocked: penstock.Log, clock: VirtualClock, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand harmless retries of a lost lease take about sixteen leases in one process."""
    log = clocked
    log.create_group("orders", "g", retry=SIX_ATTEMPTS, lease_seconds=30)
    log.append_many("orders", [{"payload": {"script": {}}, "type": "t"}] * 1_000)
    lease = claim_lease(log, limit=1_000)
    lease.settle(failed={event: "no" for event in lease.events})
    assert len(claim_lease(log, limit=1_000)) == 1_000
    clock.advance(31)
    monkeypatch.setattr(Supervised, "_retire", _only_at_the_end(Supervised._retire))
    _Retired.count = 0
    engine = run_local_until_drained(log, subscription(handlers.scripted_plain, retry=SIX_ATTEMPTS, lease_seconds=30))
    assert {(str(one.state), one.failures, one.attempts) for one in log.deliveries("orders", "g", limit=1_000)} == {
        ("PUBLISHED", 1, 3)
    }
    assert engine.snapshot()["orders/g"]["leases"] <= 20 and engine.snapshot()["orders/g"]["deaths"] == 0
    assert _Retired.count == 1, "only the engine's stop may retire the child"


class _Retired:
    count = 0


def _only_at_the_end(real: Callable[[Supervised], None]) -> Callable[[Supervised], None]:
    def retire(self: Supervised) -> None:
        _Retired.count += 1
        real(self)

    return retire


@pytest.mark.shows("K44")
def test_only_events_in_flight_when_a_process_dies_are_suspects(log: penstock.Log, notes: Path) -> None:
    scripts: list[dict[str, str]] = [{} for _ in range(40)]
    scripts[17] = {str(attempt): "exit" for attempt in range(1, 20)}
    append_scripts(log, scripts, lambda n: None)
    run_local_until_drained(
        log, subscription(handlers.scripted_plain, concurrency=4, retry=penstock.Retry(max_attempts=2, base_seconds=0))
    )
    (dead,) = log.deliveries("orders", "g", state="DEAD")
    assert (dead.offset, dead.failures, dead.attempts) == (18, 2, 3), "once with others, twice alone"
    others = [one for one in log.deliveries("orders", "g") if one.offset != 18]
    assert {(str(one.state), one.failures) for one in others} == {("PUBLISHED", 0)}
    assert_each_call_has_its_own_attempt(notes)

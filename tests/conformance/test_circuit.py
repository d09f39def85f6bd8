"""The circuit of a group: stored, shared by all workers, probed by one lease at a time."""

from __future__ import annotations

from datetime import timedelta

import pytest

import penstock
from penstock.core.lease import Idle
from penstock.log.lease import Lease
from penstock.testing import VirtualClock
from tests.support.logs import MakeLog
from tests.support.raw_sql import raw

pytestmark = pytest.mark.shows("K13", "K47")


def claimed(log: penstock.Log, by: str = "w", limit: int = 100) -> Lease:
    found = log.try_claim("orders", "g", limit=limit, claimed_by=by)
    assert isinstance(found, Lease), found
    return found


def waits(log: penstock.Log, by: str = "w") -> float:
    """How long the open circuit makes a claimer wait."""
    found = log.try_claim("orders", "g", limit=100, claimed_by=by)
    assert isinstance(found, Idle) and found.unavailable and found.seconds is not None, found
    return found.seconds


def break_it(lease: Lease, why: str = "the bank is closed") -> None:
    lease.settle(released=[event.event_id for event in lease.events], unavailable=penstock.Unavailable(why))


@pytest.fixture(params=["plain", "ordered"])
def two(request: pytest.FixtureRequest, make_log: MakeLog, clock: VirtualClock) -> list[penstock.Log]:
    """One log opened twice, as by two processes, with ten events for one group."""
    logs = [make_log(clock=clock), make_log(clock=clock)]
    logs[0].append_many("orders", [{"payload": n, "type": "t", "ordering_key": f"k{n % 3}"} for n in range(10)])
    ordering = "key" if request.param == "ordered" else None
    logs[0].create_group("orders", "g", ordering=ordering, lanes=4 if ordering else None)
    return logs


def test_all_processes_together_have_one_probe_at_a_time(two: list[penstock.Log], clock: VirtualClock) -> None:
    here, there = two
    break_it(claimed(here))
    assert waits(here) == waits(there) == 1.0
    clock.advance(0.999999)
    assert waits(there) > 0
    for delay in (2, 4, 8, 16, 32, 60, 60):
        clock.advance(waits(there))
        probe = claimed(there)
        assert len(probe) == 1
        assert 0 < waits(here) <= 0.25, "other claimers look again soon while a probe runs"
        clock.advance(0.1)
        break_it(probe, "still closed")
        assert waits(here) == waits(there) == delay
    (group,) = here.groups("orders")
    assert group.circuit is not None and group.circuit.last_error == "still closed"
    assert group.circuit.error_code == "Unavailable" and group.circuit.delay_seconds == 60
    clock.advance(60)
    probe = claimed(here)
    probe.settle()
    assert here.groups("orders")[0].circuit is None
    seen = 1
    while (lease := there.claim("orders", "g", limit=100, claimed_by="w")) is not None:
        assert len(lease) > 1 or here.groups("orders")[0].ordered
        seen += len(lease)
        lease.settle()
    shown = here.deliveries("orders", "g")
    assert seen == 10 and {(str(one.state), one.failures) for one in shown} == {("PUBLISHED", 0)}


def test_leases_claimed_before_the_circuit_opened_do_not_change_it(
    two: list[penstock.Log], clock: VirtualClock
) -> None:
    here, there = two
    early, late, broken = (claimed(here, limit=1) for _ in range(3))
    break_it(broken)
    early.settle()
    assert waits(there) == 1.0, "the settle of an older lease changed the circuit"
    break_it(late)
    assert waits(there) == 1.0


def test_a_probe_that_fails_without_unavailable_leaves_the_circuit_open(
    two: list[penstock.Log], clock: VirtualClock
) -> None:
    here, there = two
    break_it(claimed(here))
    clock.advance(1)
    probe = claimed(here)
    probe.settle(failed={probe.events[0].event_id: ValueError("bad amount")})
    after = claimed(there)
    assert len(after) == 1, "another probe, at once"
    after.settle()
    assert here.groups("orders")[0].circuit is None


def test_a_released_or_expired_probe_is_followed_by_another_probe(two: list[penstock.Log], clock: VirtualClock) -> None:
    here, there = two
    break_it(claimed(here))
    clock.advance(1)
    claimed(here).release()
    lost = claimed(there)
    assert 0 < waits(here) <= 0.25
    clock.advance(61)
    probe = claimed(here)
    assert len(probe) == 1
    with pytest.raises(penstock.LeaseLost):
        break_it(lost)
    probe.settle()
    assert here.groups("orders")[0].circuit is None


def test_events_released_by_an_open_circuit_keep_its_error(two: list[penstock.Log], clock: VirtualClock) -> None:
    here, _ = two
    lease = claimed(here)
    break_it(lease)
    with raw(here.store.url) as sql:
        said = ("the bank is closed", "Unavailable")
        assert sql(f"select last_error, error_code from penstock.leases where id = {lease.id}") == [said]
        assert sql("select last_error, error_code from penstock.returned") == [said]
    clock.advance(1)
    probe = claimed(here)
    probe.settle(failed={probe.events[0].event_id: "bad"})
    clock.advance(3600)
    row = claimed(here)  # another probe
    while row.is_range:
        row.settle(failed={row.events[0].event_id: "bad"})
        clock.advance(3600)
        row = claimed(here)
    break_it(row, "closed again")
    record = here.delivery("orders", "g", row.events[0].event_id)
    assert record.last_error == "closed again" and record.error_code == "Unavailable" and record.failures == 1


def test_the_circuit_survives_a_restart_and_is_deleted_with_its_group(
    two: list[penstock.Log], make_log: MakeLog, clock: VirtualClock
) -> None:
    here, _ = two
    break_it(claimed(here))
    after = make_log(clock=clock)
    assert waits(after) == 1.0
    after.pause("orders", "g")
    found = after.try_claim("orders", "g", claimed_by="w")
    assert isinstance(found, Idle) and found.paused
    after.resume("orders", "g")
    after.delete_group("orders", "g")
    after.create_group("orders", "g")
    assert after.groups("orders")[0].circuit is None and len(claimed(after)) == 10


def test_a_repeated_settle_opens_the_circuit_once(two: list[penstock.Log], clock: VirtualClock) -> None:
    here, there = two
    lease = claimed(here)
    break_it(lease)
    clock.advance(timedelta(seconds=0.5).total_seconds())
    break_it(lease)
    assert waits(there) == 0.5

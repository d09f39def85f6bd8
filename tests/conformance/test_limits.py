"""`max_in_flight` and `rate_per_second`: checked inside the claim, so they hold over all workers."""

from __future__ import annotations

import threading

import pytest

import penstock
from penstock.testing import VirtualClock
from tests.support.log_steps import append_orders
from tests.support.logs import MakeLog


def claimed(log: penstock.Log, limit: int = 100) -> penstock.Lease | None:
    return log.claim("orders", "g", limit=limit, claimed_by="w")


@pytest.mark.shows("J16")
@pytest.mark.parametrize("ordering", [None, "key"])
def test_no_more_than_so_many_are_in_work(log: penstock.Log, ordering: str | None) -> None:
    log.append_many("orders", [{"payload": {}, "type": "t", "ordering_key": f"k{n}"} for n in range(40)])
    log.create_group("orders", "g", max_in_flight=5, ordering=ordering)
    held = []
    while (lease := claimed(log, 3)) is not None:
        held.append(lease)
        assert log.stats().groups[0].claimed <= 5
    assert sum(len(one) for one in held) == 5
    held[0].settle()
    again = claimed(log)
    assert again is not None and len(again) == len(held[0])
    again.settle(failed={event.event_id: "no" for event in again.events})
    back = claimed(log)
    assert back is not None and len(back) <= len(again)


@pytest.mark.shows("J16")
def test_many_workers_together_stay_within_the_limit(make_log: MakeLog) -> None:
    logs = [make_log() for _ in range(4)]
    append_orders(logs[0], 200)
    logs[0].create_group("orders", "g", max_in_flight=7)
    most, done, lock = [0], [0], threading.Lock()

    def work(log: penstock.Log) -> None:
        for _ in range(60):
            lease = log.claim("orders", "g", limit=3, claimed_by="w")
            if lease is None:
                continue
            with lock:
                most[0] = max(most[0], log.stats().groups[0].claimed)
                done[0] += len(lease)
            lease.settle()

    threads = [threading.Thread(target=work, args=(log,)) for log in logs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done[0] > 50 and most[0] <= 7


@pytest.mark.shows("J16")
def test_no_more_than_so_many_a_second(clocked: penstock.Log, clock: VirtualClock) -> None:
    append_orders(clocked, 100)
    clocked.create_group("orders", "g", rate_per_second=10)
    counts = []
    for _ in range(12):
        lease = claimed(clocked)
        counts.append(0 if lease is None else len(lease))
        if lease is not None:
            lease.settle()
        clock.advance(0.25)
    assert counts[0] == 10 and sum(counts) <= 10 + 10 * 0.25 * 11
    assert sum(counts) >= 10 + 10 * 0.25 * 11 - 1
    clock.advance(3600)
    lease = claimed(clocked)
    assert lease is not None and len(lease) == 10, "what is not used is not saved up"


@pytest.mark.shows("J16")
def test_a_slow_rate_says_when_to_come_back(clocked: penstock.Log, clock: VirtualClock) -> None:
    append_orders(clocked, 3)
    clocked.create_group("orders", "g", rate_per_second=0.5)
    assert claimed(clocked) is not None
    found = clocked.try_claim_unread("orders", "g", limit=10, claimed_by="w", run=None)
    assert not isinstance(found, penstock.Lease) and found is not None and found.seconds == 2.0
    clock.advance(2)
    assert claimed(clocked) is not None


@pytest.mark.shows("J16")
def test_limits_of_a_job_type_hold_over_its_priorities(clocked: penstock.Log, clock: VirtualClock) -> None:
    clocked.declare_job("a", max_in_flight=3)
    clocked.declare_job("b", rate_per_second=2)
    for priority in range(4):
        clocked.submit_many("a", [{"payload": 1}] * 2, priority=priority)
        clocked.submit_many("b", [{"payload": 1}] * 2, priority=priority)
    jobs = clocked.claim_jobs("w", ["a"], limit=8)
    assert [job.priority for job in jobs] == [3, 3, 2]
    assert clocked.claim_job("w", ["a"]) is None
    clocked.complete_job(jobs[0].id, "w")
    assert len(clocked.claim_jobs("w", ["a"], limit=8)) == 1
    assert len(clocked.claim_jobs("w", ["b"], limit=8)) == 2
    clock.advance(1)
    assert len(clocked.claim_jobs("w", ["b"], limit=8)) == 2


@pytest.mark.shows("J16", "K26")
def test_limits_are_changed_and_removed_and_audited(log: penstock.Log) -> None:
    append_orders(log, 10)
    log.create_group("orders", "g", max_in_flight=1)
    lease = claimed(log)
    assert lease is not None and len(lease) == 1
    changed = log.set_group("orders", "g", max_in_flight=3, rate_per_second=1000)
    assert (changed.max_in_flight, changed.rate_per_second) == (3, 1000)
    more = claimed(log)
    assert more is not None and len(more) == 2
    free = log.set_group("orders", "g", max_in_flight=0, rate_per_second=0)
    assert (free.max_in_flight, free.rate_per_second) == (None, None)
    rest = claimed(log)
    assert rest is not None and len(rest) == 7
    for wrong in ({"max_in_flight": -1}, {"max_in_flight": 1.5}, {"rate_per_second": -1}, {"rate_per_second": "fast"}):
        with pytest.raises(penstock.InvalidInput):
            log.set_group("orders", "g", **wrong)  # type: ignore[arg-type]
        with pytest.raises(penstock.InvalidInput):
            log.create_group("orders", "h", **wrong)  # type: ignore[arg-type]

"""One event's life in every group, jobs for people who look, and plans that are started once."""

from __future__ import annotations

import pytest

import penstock
from penstock.errors import PlanOutdated, UnknownEvent
from tests.support.declarations import RETRY_AT_ONCE


@pytest.mark.shows("O02", "K22")
def test_an_events_life_has_every_group_and_every_transition(log: penstock.Log) -> None:
    for name in ("fraud", "lake", "mail"):
        log.create_group("orders", name, retry=RETRY_AT_ONCE)
    log.create_group("orders", "other", types=["refund.*"])
    made = [log.append("orders", {"n": n}, type="order.created") for n in range(12)]
    one = made[4].event_id
    for _ in range(2):
        lease = log.claim("orders", "fraud", limit=12, claimed_by="w-7")
        assert lease is not None
        lease.settle(failed={one: "KeyError: 'score'"})
    log.redrive("orders", "fraud", event_ids=[one], by="ada", reason="fixed in 4.2")
    whole = log.claim("orders", "lake", limit=12, claimed_by="w-2")
    assert whole is not None
    whole.settle()
    life = log.life("orders", one)
    groups = {group.group: group for group in life.groups}
    assert set(groups) == {"fraud", "lake", "mail"}  # what no group wants has no life there
    outcomes = [line.outcome for line in groups["fraud"].history]
    assert outcomes == ["claimed", "failed", "claimed", "dead", "redriven"]
    assert groups["fraud"].state == "PENDING" and groups["fraud"].total_attempts == 2
    assert [line.outcome for line in groups["lake"].history] == ["claimed", "published"]
    assert groups["mail"].history == () and groups["mail"].before == 4 and groups["lake"].before is None
    lease_of_lake = life.leases[groups["lake"].lease or 0]
    assert (lease_of_lake.members, lease_of_lake.ranged, lease_of_lake.outcome) == (12, True, "settled")
    assert len(life.leases) == 3
    (done,) = life.done
    assert (done.what, done.by, done.count, done.reason) == ("redriven", "ada", 1, "fixed in 4.2")
    for group in life.groups:  # the same as one group after the other says
        alone = log.delivery("orders", group.group, one)
        assert (alone.state, alone.history) == (group.state, group.history)
    assert log.stream_of(made[4].offset) == log.stream_of(one) == ("orders", made[4].offset)
    with pytest.raises(UnknownEvent):
        log.life("elsewhere", one)


def test_jobs_are_paged_the_newest_first_or_as_they_will_run(log: penstock.Log) -> None:
    ids = [log.submit("a" if n % 2 else "b", {"n": n}, queue="q", priority=n % 3).id for n in range(9)]
    for n in range(4):
        job = log.claim_job("w", queue="q")
        assert job is not None
        if n:
            log.complete_job(job.id, "w", token=job.token)
    dead = log.cancel_job(ids[-1]) if log.job(ids[-1]).status == "PENDING" else log.cancel_job(ids[0])
    every = log.job_page(queue="q", limit=4)
    rest = log.job_page(queue="q", limit=4, cursor=every.next)
    assert [one.id for one in (*every.jobs, *rest.jobs)] == ids[:0:-1] and not every.ascending
    last = log.job_page(queue="q", limit=4, cursor=rest.next)
    assert [one.id for one in last.jobs] == ids[:1] and last.next is None
    waiting = log.job_page(state="PENDING", limit=2)
    assert waiting.ascending and [one.offset for one in waiting.jobs] == sorted(one.offset or 0 for one in waiting.jobs)
    assert [one.status for one in log.job_page(state="CLAIMED").jobs] == ["CLAIMED"]
    assert [one.id for one in log.job_page(state="DEAD").jobs] == [dead.id]
    assert (
        len(log.job_page(state="PUBLISHED", type="a").jobs) + len(log.job_page(state="PUBLISHED", type="b").jobs) == 3
    )
    assert log.job_page(queue="empty") == log.job_page(type="nothing")


@pytest.mark.shows("O04")
def test_a_plan_is_started_once(log: penstock.Log) -> None:
    log.create_group("orders", "fraud")
    log.append_many("orders", [{"payload": n, "type": "t"} for n in range(5)])
    lease = log.claim("orders", "fraud", claimed_by="w")
    assert lease is not None
    lease.settle(dead={event.event_id: "boom" for event in lease.events})
    first, second = (log.operation("redrive", "orders", "fraud", all=True, canary=1, by=one) for one in ("ada", "bob"))
    plan = first.plan()
    number = first.start(plan).id
    with pytest.raises(PlanOutdated, match=f"Operation {number} does the same"):
        second.start(plan)
    assert [one.id for one in log.operations()] == [number]

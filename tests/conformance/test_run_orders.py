"""The tasks of a run and its driver meet in the database: orders come with claims, counts from the leases."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import penstock
from penstock.log.runs import NewRun
from penstock.testing import VirtualClock
from tests.support.log_steps import append_orders
from tests.support.logs import MakeLog

FAST = penstock.Retry(max_attempts=2, base_seconds=1, jitter=0)


def started(log: penstock.Log) -> int:
    return log.start_run(NewRun("host/1", "shop", "spark", "1", "host", 1, ["orders/g"]))


@pytest.mark.shows("S18")
@pytest.mark.parametrize("filtered", [False, True], ids=["in one statement", "step by step"])
def test_a_claim_and_an_extension_tell_what_the_run_should_do(log: penstock.Log, filtered: bool) -> None:
    """A claim is one statement on PostgreSQL where it is simple; a group with filters needs more."""
    append_orders(log, 8)
    log.create_group("orders", "g", types=["order.*"] if filtered else None)
    run = started(log)

    def claimed(of: int | None) -> penstock.Lease:
        lease = log.claim("orders", "g", limit=2, claimed_by="w", run=of)
        assert lease is not None
        return lease

    lease = claimed(run)
    assert lease.wanted == log.wanted_of_run(run) == "run"
    log.quiet_run(run, by="ada")
    assert lease.wanted == "run" and claimed(run).wanted == "quiet"
    log.order_run(run, "stop")
    assert claimed(run).wanted == log.wanted_of_run(run) == "stop"
    lease.extend()
    assert lease.wanted == "stop"
    assert claimed(None).wanted is None and log.wanted_of_run(run + 1) is None


@pytest.mark.shows("S18")
def test_a_run_is_counted_by_its_leases(clocked: penstock.Log, clock: VirtualClock) -> None:
    ids = append_orders(clocked, 12)
    clocked.create_group("orders", "g", retry=FAST)
    run, other = started(clocked), started(clocked)

    def claimed(limit: int, of: int = run) -> penstock.Lease:
        lease = clocked.claim("orders", "g", limit=limit, claimed_by="w", run=of)
        assert lease is not None
        return lease

    claimed(1, other).settle()
    counts = clocked.count_run(run)
    counts.read()
    assert counts.groups == {}
    claimed(1, other).settle()
    first = claimed(5)
    counts.read()
    assert counts.groups["orders/g"] == {"leases": 1}
    first.settle(failed={ids[2]: "no"}, dead={ids[3]: "never"}, released=[ids[6]])
    claimed(2)  # its worker is killed: nobody settles
    counts.read()
    counts.read()
    expected = {"leases": 2, "published": 2, "failed": 1, "dead": 1, "released": 1}
    assert {name: count for name, count in counts.groups["orders/g"].items() if count} == expected
    clock.advance(3600)
    clocked.reap()
    counts.read()
    clock.advance(10)  # what was lost alone is retried
    while (lease := clocked.claim("orders", "g", limit=50, claimed_by="w", run=run)) is not None:
        lease.settle()
    counts.read()
    assert counts.groups["orders/g"]["published"] == 9, "all but one dead and two of the other run"


@pytest.mark.shows("S18")
def test_a_lease_that_commits_after_a_later_one_is_counted(postgres_log: penstock.Log) -> None:
    log, before_commit, go = postgres_log, threading.Event(), threading.Event()

    def hold(when: str, block: str) -> None:
        if (when, block) == ("before", "commit"):
            before_commit.set()
            assert go.wait(30)

    append_orders(log, 4)
    for group in ("g", "h"):
        log.create_group("orders", group)
    run = started(log)
    counts = log.count_run(run)
    with penstock.open(log.store.url, hook=hold, migrate=False) as slow, ThreadPoolExecutor(1) as thread:
        claiming = thread.submit(slow.claim, "orders", "g", limit=3, claimed_by="w", run=run)
        assert before_commit.wait(30)
        late = log.claim("orders", "h", limit=4, claimed_by="w", run=run)
        counts.read()
        go.set()
        early = claiming.result(30)
        assert early is not None and late is not None and early.id < late.id
        early.settle()
        late.settle()
    counts.read()
    assert {name: one["published"] for name, one in counts.groups.items()} == {"orders/g": 3, "orders/h": 4}


@pytest.mark.shows("S21")
def test_an_idle_group_is_recognised_without_a_claim(clocked: penstock.Log, clock: VirtualClock) -> None:
    log = clocked
    ids = append_orders(log, 2)
    log.create_group("orders", "g", retry=FAST)
    assert log.idle("orders", "g") is None, "two events are due"
    lease = log.claim("orders", "g", limit=5, claimed_by="w")
    assert lease is not None
    found = log.idle("orders", "g")
    assert found is not None and found.horizon == found.end == 2, "in work is not due"
    lease.settle(failed={ids[0]: "no"})
    found = log.idle("orders", "g")
    assert found is not None and found.seconds == 1.0, "the retry is due in a second"
    append_orders(log, 1, stream="others")
    found = log.idle("orders", "g")
    assert found is not None and found.horizon == 3, "the event of another stream is passed over"
    clock.advance(1)
    assert log.idle("orders", "g") is None
    again = log.claim("orders", "g", limit=5, claimed_by="w")
    assert again is not None
    again.release()
    assert log.idle("orders", "g") is None, "what was given back is due at once"
    log.pause("orders", "g")
    found = log.idle("orders", "g")
    assert found is not None and found.paused
    with pytest.raises(penstock.PenstockError, match="There is no group"):
        log.idle("orders", "nobody")


@pytest.mark.shows("S21")
def test_an_event_that_commits_during_the_look_at_an_idle_group_wakes_it(make_log: MakeLog) -> None:
    """Between any two statements of the look; it is either seen, or beyond what the look says it saw."""
    other = make_log()
    other.create_group("orders", "g")
    looked: list[str] = []
    when: str | None = None

    def hook(moment: str, block: str) -> None:
        if moment == "before":
            looked.append(block)
            if block == when:
                append_orders(other, 1)

    log = make_log(hook=hook)
    log.idle("orders", "g")
    for when in list(dict.fromkeys(looked)):
        found = log.idle("orders", "g")
        assert found is None or found.horizon < other.end(), f"appended before {when}"
        lease = other.claim("orders", "g", limit=10, claimed_by="w")
        assert lease is not None
        lease.settle()

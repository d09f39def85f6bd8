"""Claim, heartbeat, complete, fail: a job has one holder, and only its token proves it."""

from __future__ import annotations

import threading
import uuid
from datetime import timedelta

import pytest

import penstock
from penstock.testing import VirtualClock
from tests.support.jobs import types_claimed
from tests.support.logs import MakeLog
from tests.support.raw_sql import raw


def claim(log: penstock.Log, worker: str = "w-1", types: list[str] | None = None) -> penstock.Job:
    job = log.claim_job(worker, types or ["a"])
    assert job is not None
    return job


@pytest.mark.shows("J02")
@pytest.mark.clause("004-2", "004-10", "004-11", "004-12", "004-13", "004-14", "004-15", "004-16")
def test_the_highest_priority_then_the_oldest_of_the_wanted_types(clocked: penstock.Log, clock: VirtualClock) -> None:
    order = [("a", 0), ("b", 0), ("c", 0), ("a", 5), ("b", 9), ("a", 0), ("b", 5)]
    ids = {n: clocked.submit(kind, {"n": n}, priority=priority).id for n, (kind, priority) in enumerate(order)}
    clock.advance(3)
    job = clocked.claim_job("w-1", ["a", "b"])
    assert job is not None and job.id == ids[4]
    assert (job.status, job.attempts, job.worker, job.json()) == ("CLAIMED", 1, "w-1", {"n": 4})
    shown = clocked.job(job.id)
    assert (shown.status, shown.attempts, shown.worker) == ("CLAIMED", 1, "w-1")
    assert shown.claimed_at == shown.heartbeat_at == clock.now()
    rest = [clocked.claim_job("w-1", ["a", "b"]) for _ in range(6)]
    assert [one and one.id for one in rest] == [ids[3], ids[6], ids[0], ids[1], ids[5], None]
    assert clocked.claim_job("w-1", ["unknown"]) is None
    left = clocked.claim_job("w-1")
    assert left is not None and left.id == ids[2], "without types: any"
    assert clocked.claim_job("w-1", queue="other") is None


@pytest.mark.shows("J02")
def test_a_retried_and_a_delayed_job_keep_their_place(clocked: penstock.Log, clock: VirtualClock) -> None:
    soon = clock.now() + timedelta(seconds=60)
    dated = clocked.submit("a", {}, available_at=soon).id
    failing, second = clocked.submit("a", {}).id, clocked.submit("a", {}).id
    job = claim(clocked)
    assert job.id == failing
    clocked.fail_job(job.id, "w-1", error="not yet", retry_in=60)
    job = claim(clocked)
    assert job.id == second
    clocked.complete_job(job.id, "w-1")
    newest = clocked.submit("a", {}).id
    clock.advance(60)
    assert [claim(clocked).id for _ in range(3)] == [dated, failing, newest]


@pytest.mark.shows("J02")
def test_a_job_dated_ahead_makes_its_type_no_older(clocked: penstock.Log, clock: VirtualClock) -> None:
    clocked.submit("a", {}, available_at=clock.now() + timedelta(seconds=60))
    older, newer = clocked.submit("b", {}).id, clocked.submit("a", {}).id
    found = [clocked.claim_job("w-1", ["a", "b"]) for _ in range(3)]
    assert [one and one.id for one in found] == [older, newer, None]


@pytest.mark.shows("J02", "K35")
def test_many_claimers_get_every_job_once(make_log: MakeLog) -> None:
    logs = [make_log() for _ in range(4)]
    ids = logs[0].submit_many("a", [{"payload": {"n": n}} for n in range(120)]).ids
    got: list[list[uuid.UUID]] = [[] for _ in logs]

    def work(number: int) -> None:
        while (job := logs[number].claim_job(f"w-{number}", ["a"])) is not None:
            got[number].append(job.id)
            logs[number].complete_job(job.id, f"w-{number}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(job for some in got for job in some) == sorted(ids)
    assert {(job.status, job.attempts) for job in logs[0].jobs()} == {("PUBLISHED", 1)}


@pytest.mark.shows("J02")
def test_claim_jobs_gives_each_job_a_lease_of_its_own(log: penstock.Log) -> None:
    ids = log.submit_many("a", [{"payload": n} for n in range(1, 6)]).ids
    first = log.submit("b", {}, priority=1)
    jobs = log.claim_jobs("w", ["a", "b"], limit=4)
    assert [job.id for job in jobs] == [first.id, *ids[:3]] and len({job.token for job in jobs}) == 4
    log.complete_job(jobs[1].id, "w", result={"n": 1})
    log.fail_job(jobs[2].id, "w", error="no", retry_in=0)
    assert [log.job(job.id).status for job in jobs] == ["CLAIMED", "PUBLISHED", "PENDING", "CLAIMED"]
    again = log.claim_jobs("w", ["a", "b"], limit=10)
    assert [(job.id, job.attempts) for job in again] == [(ids[1], 2), (ids[3], 1), (ids[4], 1)]
    assert log.claim_jobs("w", ["a"], limit=10) == []
    assert log.claim_jobs("w", ["a"], limit=0) == []


@pytest.mark.shows("J03", "K15")
@pytest.mark.clause("004-18", "004-19")
def test_a_heartbeat_needs_the_token_and_extends_the_lease(make_log: MakeLog, clock: VirtualClock) -> None:
    log, other = make_log(clock=clock), make_log(clock=clock)
    log.submit("a", {})
    job = claim(log)
    clock.advance(20)
    assert log.heartbeat(job.id, "w-1") == "extended", "the log that claimed it needs no token"
    assert other.heartbeat(job.id, "w-1", token=job.token) == "extended"
    assert other.job(job.id).heartbeat_at == clock.now()
    for log_, worker, token in ((other, "w-1", None), (other, "w-1", job.token + 1), (log, "w-2", None)):
        with pytest.raises(penstock.LeaseLost):
            log_.heartbeat(job.id, worker, token=token)
    with pytest.raises(penstock.LeaseLost):
        other.heartbeat(job.id, "w-2", token=job.token)
    with pytest.raises(penstock.InvalidInput):
        other.heartbeat(job.id, "w-1", token="abc")  # type: ignore[arg-type]
    clock.advance(29)
    assert log.job(job.id).status == "CLAIMED"
    clock.advance(1)
    with pytest.raises(penstock.LeaseLost):
        log.heartbeat(job.id, "w-1")


@pytest.mark.shows("J03", "J04")
def test_a_token_proves_only_its_own_job(log: penstock.Log, make_log: MakeLog) -> None:
    log.submit("a", {"n": 1})
    log.submit("a", {"n": 2})
    first, second = claim(log), claim(log)
    other = make_log()
    for call in (other.heartbeat, other.complete_job, other.fail_job):
        with pytest.raises(penstock.LeaseLost):
            call(first.id, "w-1", token=second.token)
    with pytest.raises(penstock.UnknownJob):
        other.complete_job(uuid.uuid4(), "w-1", token=second.token)
    assert [log.job(one.id).status for one in (first, second)] == ["CLAIMED", "CLAIMED"]


@pytest.mark.shows("J04", "J18", "K15")
@pytest.mark.clause("004-20", "004-21")
def test_complete_is_for_the_owner_and_can_be_repeated(make_log: MakeLog, clock: VirtualClock) -> None:
    log, other = make_log(clock=clock), make_log(clock=clock)
    log.submit("a", {})
    job = claim(log)
    log.complete_job(job.id, "w-1", token=job.token, result={"sent": 3})
    other.complete_job(job.id, "w-1", token=job.token, result={"sent": 3})
    with pytest.raises(penstock.SettleMismatch):
        other.complete_job(job.id, "w-1", token=job.token, result={"sent": 4})
    with pytest.raises(penstock.LeaseLost):
        other.fail_job(job.id, "w-2", token=job.token, error="no")
    shown = log.job(job.id)
    assert (shown.status, shown.result, shown.finished_at) == ("PUBLISHED", {"sent": 3}, clock.now())


@pytest.mark.shows("J04", "J05", "J03")
@pytest.mark.clause("004-3", "004-23", "004-24", "004-27")
def test_a_stale_owner_changes_nothing(make_log: MakeLog, clock: VirtualClock) -> None:
    log, other = make_log(clock=clock), make_log(clock=clock)
    log.submit("a", {})
    stale = claim(log)
    clock.advance(30)
    fresh = claim(other, "w-2")
    assert (fresh.id, fresh.attempts) == (stale.id, 2) and fresh.token > stale.token
    for call in (log.heartbeat, log.complete_job, log.fail_job):
        with pytest.raises(penstock.LeaseLost):
            call(stale.id, "w-1", token=stale.token)
    assert other.job(fresh.id).worker == "w-2"
    other.complete_job(fresh.id, "w-2")


@pytest.mark.shows("J05")
@pytest.mark.clause("004-32")
def test_a_worker_that_crashes_at_eight_seconds_loses_its_job(clocked: penstock.Log, clock: VirtualClock) -> None:
    """The page's second timeline: a beat at 5 s, a crash at 8 s, stale after 35 s."""
    clocked.submit("a", {})
    job = claim(clocked)
    clock.advance(5)
    clocked.heartbeat(job.id, "w-1")
    clock.advance(29.9)
    assert clocked.claim_job("w-2", ["a"]) is None
    clock.advance(0.1)
    assert clocked.reap() == 1, "expiry needs no traffic"
    shown = clocked.job(job.id)
    assert (shown.status, shown.attempts, shown.error_code) == ("PENDING", 1, "lease_expired")
    again = claim(clocked, "w-2")
    assert (again.id, again.attempts) == (job.id, 2)


@pytest.mark.shows("J05")
@pytest.mark.clause("004-17", "004-31")
def test_beats_every_five_seconds_keep_a_long_job(clocked: penstock.Log, clock: VirtualClock) -> None:
    """The page's first timeline."""
    clocked.submit("a", {})
    job = claim(clocked)
    for _ in range(12):
        clock.advance(5)
        assert clocked.heartbeat(job.id, "w-1") == "extended" and clocked.claim_job("w-2", ["a"]) is None
    clocked.complete_job(job.id, "w-1")
    shown = clocked.job(job.id)
    assert (shown.status, shown.attempts, clocked.claim_job("w-2", ["a"])) == ("PUBLISHED", 1, None)


@pytest.mark.shows("J06")
@pytest.mark.clause("004-5", "004-25", "004-26")
def test_after_its_last_attempt_a_job_is_kept_as_dead(clocked: penstock.Log, clock: VirtualClock) -> None:
    clocked.submit("a", {})
    for attempt in (1, 2):
        job = claim(clocked)
        assert job.attempts == attempt
        clock.advance(60)
    job = claim(clocked)
    clocked.fail_job(job.id, "w-1", error=ValueError("no such address"))
    shown = clocked.job(job.id)
    assert (shown.status, shown.attempts, shown.error) == ("DEAD", 3, "no such address")
    assert clocked.claim_job("w-1", ["a"]) is None
    assert clocked.stats().groups[0].dead == 1


@pytest.mark.shows("J06")
def test_a_job_may_have_its_own_number_of_attempts(clocked: penstock.Log, clock: VirtualClock) -> None:
    once, often = clocked.submit("a", {}, max_attempts=1).id, clocked.submit("a", {}, max_attempts=5).id
    expired = clocked.submit("a", {}, max_attempts=1).id
    for _ in range(2):
        clocked.fail_job(claim(clocked).id, "w-1", error="no", retry_in=0)
    assert claim(clocked).id == often
    assert claim(clocked).id == expired
    clock.advance(31)
    clocked.reap()
    assert [clocked.job(one).status for one in (once, often, expired)] == ["DEAD", "PENDING", "DEAD"]
    for _ in range(3):
        clock.advance(600)
        clocked.fail_job(claim(clocked).id, "w-1", error="no", retry_in=0)
    shown = clocked.job(often)
    assert (shown.status, shown.failures, shown.max_attempts) == ("DEAD", 5, 5)


@pytest.mark.shows("J07")
def test_a_failure_waits_for_its_backoff_or_as_long_as_it_says(clocked: penstock.Log, clock: VirtualClock) -> None:
    clocked.submit("a", {})
    job = claim(clocked)
    clocked.fail_job(job.id, "w-1", error="busy")
    shown = clocked.job(job.id)
    assert shown.available_at is not None
    assert timedelta(seconds=1.8) <= shown.available_at - clock.now() <= timedelta(seconds=2)
    assert clocked.claim_job("w-1", ["a"]) is None
    clock.advance(2)
    clocked.fail_job(claim(clocked).id, "w-1", error="busy", retry_in=100)
    assert clocked.job(job.id).available_at == clock.now() + timedelta(seconds=100)
    clock.advance(100)
    clocked.fail_job(claim(clocked).id, "w-1", error=penstock.Permanent("never"))
    assert clocked.job(job.id).status == "DEAD"


@pytest.mark.shows("J07")
def test_a_permanent_failure_needs_no_second_attempt(log: penstock.Log) -> None:
    log.submit("a", {})
    job = claim(log)
    log.fail_job(job.id, "w-1", error=penstock.Permanent("never"))
    assert (log.job(job.id).status, log.job(job.id).attempts) == ("DEAD", 1)


@pytest.mark.shows("J17")
def test_a_waiting_job_is_cancelled_at_once(clocked: penstock.Log, clock: VirtualClock) -> None:
    first = clocked.submit("a", {}).id
    later = clocked.submit("a", {}, available_at=clock.now() + timedelta(days=300)).id
    assert clocked.cancel_job(first, by="ada").status == "DEAD", "before anybody has claimed the type"
    shown = clocked.job(first)
    assert (shown.status, shown.reason, shown.error_code) == ("DEAD", "cancelled", "cancelled")
    assert clocked.claim_job("w-1", ["a"]) is None
    assert clocked.cancel_job(later).status == "DEAD"
    assert clocked.cancel_job(first).status == "DEAD", "again is harmless"
    with pytest.raises(penstock.UnknownJob):
        clocked.cancel_job(uuid.uuid4())


@pytest.mark.shows("J17")
def test_a_running_job_is_told_with_its_next_heartbeat(log: penstock.Log) -> None:
    log.submit("a", {})
    job = claim(log)
    assert log.cancel_job(job.id).status == "CLAIMED"
    assert log.heartbeat(job.id, "w-1") == "cancel"
    log.fail_job(job.id, "w-1", error=penstock.Permanent("cancelled"))
    assert log.job(job.id).status == "DEAD"
    assert log.cancel_job(job.id).status == "DEAD"


@pytest.mark.shows("J17")
@pytest.mark.parametrize("how", ["fails", "expires"])
def test_a_cancelled_job_that_comes_back_is_not_done_again(
    clocked: penstock.Log, clock: VirtualClock, how: str
) -> None:
    other = clocked.submit("a", {}).id
    job = claim(clocked)
    clocked.complete_job(job.id, "w-1")
    clocked.submit("a", {})
    job = claim(clocked)
    clocked.cancel_job(job.id, by="ada")
    if how == "fails":
        clocked.fail_job(job.id, "w-1", error="not told yet", retry_in=0)
    clock.advance(31)
    assert clocked.claim_job("w-1", ["a"]) is None
    shown = clocked.job(job.id)
    assert (shown.status, shown.reason) == ("DEAD", "cancelled")
    assert clocked.job(other).status == "PUBLISHED"
    clocked.redrive("jobs:default:0:a", "workers", event_ids=[job.id])
    assert claim(clocked).id == job.id, "a new life is not cancelled"


@pytest.mark.shows("J18")
def test_progress_and_result_are_kept_with_the_job(log: penstock.Log) -> None:
    log.submit("a", {})
    job = claim(log)
    log.heartbeat(job.id, "w-1", progress=0.4, message="40 of 100")
    shown = log.job(job.id)
    assert (shown.progress, shown.message, shown.result) == (0.4, "40 of 100", None)
    for wrong in (1.1, -0.1, "half", True, float("nan")):
        with pytest.raises(penstock.InvalidInput):
            log.heartbeat(job.id, "w-1", progress=wrong)  # type: ignore[arg-type]
    with pytest.raises(penstock.InvalidInput):
        log.complete_job(job.id, "w-1", result={"x": float("inf")})
    log.complete_job(job.id, "w-1", result=[1, "two"])
    assert log.job(job.id).result == [1, "two"] and log.job(job.id).progress == 0.4


@pytest.mark.shows("J18")
def test_a_finished_job_can_be_waited_for(log: penstock.Log, make_log: MakeLog) -> None:
    job_id = log.submit("a", {}).id
    assert log.wait_for_job(job_id, timeout=0).status == "PENDING"
    other = make_log()
    finisher = threading.Thread(target=lambda: types_claimed(other, ["a"]))
    finisher.start()
    assert log.wait_for_job(job_id, timeout=30).status == "PUBLISHED"
    finisher.join()


@pytest.mark.shows("J02")
def test_jobs_are_listed_by_queue_type_and_state_in_pages(log: penstock.Log) -> None:
    ids = [log.submit("a", {"n": n}, queue="q" if n % 2 else "default", priority=n % 3).id for n in range(6)]
    other = log.submit("b", {}).id
    assert [job.id for job in log.jobs()] == [*ids, other]
    page = log.jobs(limit=4)
    assert [job.id for job in log.jobs(after=page[-1].offset or 0)] == [*ids[4:], other]
    assert [job.id for job in log.jobs(queue="q")] == ids[1::2]
    assert [job.id for job in log.jobs(type="b")] == [other]
    job = log.claim_job("w", ["b"])
    assert job is not None and [one.id for one in log.jobs(state="CLAIMED")] == [other]
    assert [one.id for one in log.jobs(state="PENDING")] == ids
    with pytest.raises(penstock.InvalidInput):
        log.jobs(state="RUNNING")


@pytest.mark.shows("J02", "X08")
def test_bad_claims_are_refused(log: penstock.Log) -> None:
    log.submit("a", {})
    for wrong in (
        {"worker": ""},
        {"worker": None},
        {"types": "a"},
        {"types": ["a b"]},
        {"types": [None]},
        {"queue": "a:b"},
        {"lease_seconds": -1},
        {"lease_seconds": 10**9},
        {"limit": -1},
        {"limit": 10**6},
    ):
        given = {"worker": "w", "types": ["a"], "limit": 1} | wrong
        with pytest.raises(penstock.InvalidInput):
            log.claim_jobs(given.pop("worker"), **given)  # type: ignore[arg-type]
    assert log.claim_job("w", []) is None
    assert log.job(log.jobs()[0].id).attempts == 0


@pytest.mark.shows("J17")
def test_a_cancel_ends_one_life_of_a_job(log: penstock.Log) -> None:
    log.submit("a", {})
    job = claim(log)
    log.cancel_job(job.id)
    log.fail_job(job.id, "w-1", error=penstock.Permanent("cancelled"))
    log.redrive(job.stream, "workers", event_ids=[job.id])
    again = claim(log)
    assert (again.id, log.heartbeat(job.id, "w-1")) == (job.id, "extended")
    log.cancel_job(job.id)
    assert log.heartbeat(job.id, "w-1") == "cancel"


@pytest.mark.shows("J06", "K48")
def test_waiting_jobs_are_never_pruned_and_notes_leave_with_their_job(log: penstock.Log) -> None:
    log.append("orders", {}, type="t")
    first = log.submit("a", {}, unique="k")
    assert log.prune(first.stream, upto=10**6).count == 0, "nobody has claimed from it"
    job = claim(log)
    log.heartbeat(job.id, "w-1", progress=0.5)
    log.heartbeat(job.id, "w-1", message="half")
    assert (log.job(job.id).progress, log.job(job.id).message) == (0.5, "half")
    waiting = log.submit("a", {})
    log.complete_job(job.id, "w-1", result=1)
    assert log.prune(first.stream, upto=10**6).count == 1
    assert [one.id for one in log.jobs()] == [waiting.id]
    prefix = "penstock_" if log.store.kind == "sqlite" else "penstock."
    with raw(log.store.url) as sql:
        for table in ("job_notes", "job_cancels", "job_unique"):
            assert sql(f"select * from {prefix}{table}") == [], table
    assert not log.submit("a", {}, unique="k").duplicate

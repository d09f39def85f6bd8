"""Retention: finished jobs leave when their time is over, and nothing else does."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import penstock
from penstock.core import limits
from penstock.engine.local.engine import LocalEngine
from penstock.engine.rounds import rounds
from penstock.log import tally
from penstock.testing import VirtualClock
from tests.support.job_engine import job_engine, job_type
from tests.support.jobs import types_claimed
from tests.support.raw_sql import raw
from tests.support.roles import role_of
from tests.support.true_stats import check_stats
from tests.support.waiting import wait_until


def remove(log: penstock.Log) -> int:
    """Remove whatever may go."""
    count = 0
    while (removed := log.remove_finished_jobs()).more:
        count += removed.jobs
    return count + removed.jobs


def sizes(url: str) -> dict[str, int]:
    tables = (
        *("events", "leases", "deliveries", "attempt_log", "returned"),
        *("job_notes", "job_cancels", "job_unique", "job_retention", "job_totals"),
    )
    with raw(url) as sql:
        return {name: sql(f"select count(*) from penstock.{name}")[0][0] for name in tables}


@pytest.mark.shows("J06")
def test_jobs_leave_when_their_time_is_over(clocked: penstock.Log, clock: VirtualClock) -> None:
    log = clocked
    log.declare_job("a", keep_finished=timedelta(minutes=1), keep_dead=600, retry=penstock.Retry(max_attempts=1))
    done = [log.submit("a", {}, priority=priority).id for priority in (0, 9)]
    assert len(types_claimed(log)) == 2
    dead, cancelled, waiting = (log.submit("a", {}).id for _ in range(3))
    job = log.claim_job("w", ["a"])
    assert job is not None
    log.fail_job(job.id, "w", error="no")
    log.cancel_job(cancelled)
    clock.advance(59)
    assert remove(log) == 0
    clock.advance(2)
    assert remove(log) == 2
    assert {one.id for one in log.jobs()} == {dead, cancelled, waiting}
    with pytest.raises(penstock.UnknownJob):
        log.job(done[0])
    with pytest.raises(penstock.UnknownJob):
        log.wait_for_job(done[1], timeout=0)
    check_stats(log, clock.now())
    clock.advance(600)
    assert remove(log) == 2 and [one.id for one in log.jobs()] == [waiting]
    check_stats(log, clock.now())
    assert types_claimed(log) == ["a"]
    check_stats(log, clock.now())


@pytest.mark.shows("J06")
def test_nothing_that_is_unfinished_leaves(clocked: penstock.Log, clock: VirtualClock) -> None:
    log = clocked
    log.declare_job("a", keep_finished=0, keep_dead=1, retry=penstock.Retry(base_seconds=10_000, jitter=0))
    next_year = log.submit("a", {}, available_at=clock.now() + timedelta(days=365)).id
    failing, held, *_ = (log.submit("a", {}).id for _ in range(6))
    jobs = log.claim_jobs("w", ["a"], limit=6, lease_seconds=7 * 86_400)
    assert [job.id for job in jobs[:2]] == [failing, held]
    log.fail_job(failing, "w", error="later")
    for job in jobs[2:]:
        log.complete_job(job.id, "w")
    clock.advance(3600)
    assert remove(log) == 0, "an open lease holds back what is right of it"
    log.complete_job(held, "w")
    late = log.submit("a", {}).id
    clock.advance(3600)
    assert remove(log) == 5
    assert {one.id for one in log.jobs()} == {next_year, failing, late}
    check_stats(log, clock.now())
    clock.advance(400 * 86_400)
    assert sorted(types_claimed(log)) == ["a"] * 3
    clock.advance(3600)
    assert remove(log) == 3 and log.jobs() == []
    check_stats(log, clock.now())


@pytest.mark.shows("J06")
def test_a_group_that_nobody_has_created_keeps_its_jobs(clocked: penstock.Log, clock: VirtualClock) -> None:
    clocked.set_job_type("a", keep_finished=0, keep_dead=1)
    clocked.submit("a", {})
    clock.advance(10_000)
    assert remove(clocked) == 0 and len(clocked.jobs()) == 1


@pytest.mark.shows("J06")
def test_a_result_stays_for_whoever_waits_for_it(clocked: penstock.Log, clock: VirtualClock) -> None:
    log = clocked
    log.declare_job("a", keep_finished=0)
    job = log.submit("a", {})
    assert log.claim_job("w") is not None
    log.complete_job(job.id, "w", result={"sent": 1})
    clock.advance(limits.RESULT_SECONDS - 1)
    assert remove(log) == 0 and log.wait_for_job(job.id, timeout=0).result == {"sent": 1}
    clock.advance(2)
    assert remove(log) == 1


@pytest.mark.shows("J06", "J15")
def test_what_belongs_to_a_job_leaves_with_it(clocked: penstock.Log, clock: VirtualClock, log_url: str) -> None:
    log = clocked
    log.declare_job("a", keep_finished=0, keep_dead=1, retry=penstock.Retry(base_seconds=0, jitter=0))
    left = []
    for round_ in range(4):
        for n in range(12):
            log.submit("a", {"n": n}, unique=f"{round_}-{n}", priority=n % 2)
        for job in log.claim_jobs("w", ["a"], limit=6):
            log.heartbeat(job.id, "w", progress=0.5, message="half")
            log.cancel_job(job.id)
            if job.json()["n"] < 4:
                log.fail_job(job.id, "w", error="no")
            else:
                log.complete_job(job.id, "w", result=1)
        assert log.claim_jobs("dies", ["a"], limit=3, lease_seconds=5)
        clock.advance(10)
        log.reap()
        types_claimed(log)
        log.cancel_job(log.submit("a", {}, unique="last").id)
        clock.advance(60)
        assert remove(log) >= 12
        check_stats(log, clock.now())
        left.append(sizes(log_url))
    assert left[-1] == left[1], "a table grew"
    assert left[-1]["leases"] <= 4 and left[-1]["events"] <= 1
    assert left[-1]["job_notes"] == left[-1]["job_cancels"] == 0 and left[-1]["job_unique"] <= 1


@pytest.mark.shows("J15")
def test_a_job_stays_while_its_unique_key_is_its_own(clocked: penstock.Log, clock: VirtualClock) -> None:
    log = clocked
    log.declare_job("a", keep_finished=0)
    before, unique = log.submit("a", {}).id, log.submit("a", {}, unique="daily", unique_for=86_400).id
    types_claimed(log)
    clock.advance(3600)
    assert remove(log) == 1
    again = log.submit("a", {}, unique="daily")
    assert again.duplicate and again.id == unique and log.job(unique).status == "PUBLISHED"
    with pytest.raises(penstock.UnknownJob):
        log.job(before)
    clock.advance(86_400)
    assert remove(log) == 1 and not log.submit("a", {}, unique="daily").duplicate


@pytest.mark.shows("J16")
def test_a_schedule_goes_on_after_its_last_job_has_left(clocked: penstock.Log, clock: VirtualClock) -> None:
    log = clocked
    log.declare_job("report", keep_finished=0)
    log.schedule("minutely", "* * * * *", type="report")
    for _ in range(3):
        clock.advance(60)
        assert len(log.tick_schedules()) == 1
        clock.advance(60)
        assert remove(log) == 0 and log.tick_schedules() == [], "its last job is unfinished"
        assert types_claimed(log) == ["report"]
        clock.advance(20)
        assert remove(log) == 1


@pytest.mark.shows("J06")
def test_redriven_and_rewound_jobs_stay_until_they_have_finished_again(
    clocked: penstock.Log, clock: VirtualClock
) -> None:
    log = clocked
    log.declare_job("a", keep_finished=60, keep_dead=600, retry=penstock.Retry(max_attempts=1))
    stream = log.submit("a", {}).stream
    for _ in range(3):
        log.submit("a", {})
    for job in log.claim_jobs("w", ["a"], limit=4)[::2]:
        log.fail_job(job.id, "w", error="no")
    types_claimed(log)
    for job in log.jobs(state="CLAIMED"):
        log.complete_job(job.id, "w")
    clock.advance(100)
    assert remove(log) == 2
    first, second = (job.id for job in log.jobs())
    assert log.redrive(stream, "workers", event_ids=[first]).count == 1
    clock.advance(1000)
    log.submit("a", {})
    with pytest.raises(penstock.Pruned):
        log.rewind(stream, "workers", to="beginning")
    log.set_job_type("a", keep_dead="forever")
    assert remove(log) == 0 and {job.id for job in log.jobs()} >= {first, second}
    types_claimed(log)
    removed_upto = max(job.offset or 0 for job in log.jobs()) - 1
    clock.advance(30)
    log.rewind(stream, "workers", to=removed_upto)
    clock.advance(1000)
    assert remove(log) == 1, "the rewound job is not finished"
    check_stats(log, clock.now())
    types_claimed(log)
    clock.advance(100)
    assert remove(log) == 1 and [job.id for job in log.jobs()] == [second]
    check_stats(log, clock.now())


@pytest.mark.shows("J06")
def test_a_rewind_makes_dead_jobs_without_a_row_that_leave_in_their_time(
    clocked: penstock.Log, clock: VirtualClock
) -> None:
    log = clocked
    log.declare_job("a", keep_finished=60, retry=penstock.Retry(max_attempts=1))
    first = log.submit("a", {})
    dead = log.submit("a", {})
    assert log.claim_jobs("w", ["a"], limit=2)
    log.complete_job(first.id, "w")
    log.fail_job(dead.id, "w", error="no")
    clock.advance(100)
    assert remove(log) == 1
    offset = log.job(dead.id).offset
    assert offset is not None
    log.rewind(dead.stream, "workers", to=offset - 1)
    assert types_claimed(log) == ["a"]
    clock.advance(100)
    assert remove(log) == 1 and log.jobs() == [], "swept once is not swept for good"
    check_stats(log, clock.now())


@pytest.mark.shows("J06")
@pytest.mark.parametrize("wrong", [-1, True, "1 day", float("nan"), float("inf"), timedelta(days=-1), 10**12])
def test_bad_times_are_refused(log: penstock.Log, wrong: Any) -> None:
    app = penstock.App("sqlite:///x.db", name="x")
    for call in (
        lambda: log.declare_job("a", keep_finished=wrong),
        lambda: log.declare_job("a", keep_dead=wrong),
        lambda: log.set_job_type("a", keep_dead=wrong),
        lambda: app.job("a", keep_finished=wrong),
        lambda: app.job("a", keep_dead=0),
        lambda: log.set_job_type("a", keep_dead=0),
        lambda: log.set_job_type("a"),
    ):
        with pytest.raises(penstock.InvalidInput):
            call()
    assert log.job_types() == []


@pytest.mark.shows("J06")
def test_how_long_jobs_stay_can_be_changed_while_they_run(clocked: penstock.Log, clock: VirtualClock) -> None:
    log = clocked
    types = penstock.Retry(max_attempts=7)
    log.declare_job("a", retry=types, keep_finished="forever")
    log.set_job_type("a", keep_finished=timedelta(days=1), by="ops")
    stored = log.set_job_type("a", keep_dead=60)
    assert (stored.keep_finished, stored.keep_dead) == (86_400, 60)
    assert log.set_job_type("b", queue="slow", keep_finished=0).queue == "slow"
    assert [(one.type, one.keep_finished) for one in log.job_types()] == [("a", 86_400), ("b", 0)]
    log.submit("a", {})
    types_claimed(log)
    assert log.groups()[0].retry == types, "the rest of the declaration stays"
    log.set_job_type("a", keep_finished="forever")
    clock.advance(10**7)
    assert remove(log) == 0
    log.declare_job("a", retry=types, keep_finished=0)
    assert remove(log) == 1


@pytest.mark.shows("J06")
def test_prune_and_retention_keep_the_counts_right(
    clocked: penstock.Log, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = clocked
    monkeypatch.setattr(tally, "TALLY_EVERY", 16)
    monkeypatch.setattr(tally, "TALLY_GROWTH", 24)
    monkeypatch.setattr(limits, "TALLY_GROWTH", 24)
    monkeypatch.setattr(limits, "RETENTION_BATCH", 9)
    log.declare_job("a", keep_finished=50, keep_dead=500, retry=penstock.Retry(max_attempts=1))
    for n in range(6):
        log.submit_many("a", [{"payload": {}}] * 20)
        log.append_many("orders", [{"payload": {}, "type": "t"}] * 7)
        for job in log.claim_jobs("w", ["a"], limit=15):
            if (job.offset or 0) % 5 == 0:
                log.fail_job(job.id, "w", error="no")
            else:
                log.complete_job(job.id, "w")
        log.reap()
        clock.advance(20)
        remove(log)
        check_stats(log, clock.now())
        if n == 4:
            log.prune("jobs:default:0:a", upto=log.end() // 2, keep_dead=False)
            check_stats(log, clock.now())
    clock.advance(1000)
    types_claimed(log)
    clock.advance(1000)
    remove(log)
    check_stats(log, clock.now())
    assert log.jobs() == []


@pytest.mark.shows("K41")
def test_a_worker_role_removes_finished_jobs_and_nothing_else(
    postgres_log: penstock.Log, postgres_log_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    monkeypatch.setattr(limits, "RESULT_SECONDS", 0.0)
    with role_of("worker", postgres_log_url) as (url, _), penstock.open(url) as log, psycopg.connect(url) as sql:
        log.declare_job("a", keep_finished=0)
        done, held, waiting = (log.submit("a", {}) for _ in range(3))
        first, second = log.claim_jobs("w", ["a"], limit=2)
        assert (first.id, second.id) == (done.id, held.id)
        offsets = [job.offset for job in log.jobs()]
        group = log.groups()[0].group_id
        for gone in ([offsets[0]], [offsets[1]], [offsets[2]]):
            with pytest.raises(psycopg.Error, match="only finished jobs") as caught:
                sql.execute("select penstock.remove_jobs(%s, %s::bigint[], 0, 0)", (group, gone))
            assert caught.value.sqlstate == "PS001"
            sql.rollback()
        log.append("orders", {}, type="t")
        log.create_group("orders", "g")
        with pytest.raises(psycopg.Error, match="only finished jobs"):
            sql.execute("select penstock.remove_jobs(%s, '{1}', 0, 0)", (log.groups("orders")[0].group_id,))
        sql.rollback()
        log.complete_job(done.id, "w")
        assert remove(log) == 1
        assert {job.id for job in log.jobs()} == {held.id, waiting.id}


@pytest.mark.shows("J06")
def test_totals_do_not_fall_when_jobs_leave(clocked: penstock.Log, clock: VirtualClock) -> None:
    log = clocked

    def totals() -> dict[str, tuple[int, int, int, int]]:
        found = log.stats().job_types
        return {
            f"{one.queue}/{one.type}": (one.pending, one.claimed, one.completed_total, one.exhausted_total)
            for one in found
        }

    for kind in ("a", "b"):
        log.declare_job(kind, keep_finished=60, keep_dead=60, retry=penstock.Retry(max_attempts=1))
    for n in range(12):
        log.submit("ab"[n % 2], {}, priority=n % 3, queue="slow" if n > 9 else "default")
    for job in log.claim_jobs("w", ["a"], limit=5):
        if job.priority:
            log.complete_job(job.id, "w")
        else:
            log.fail_job(job.id, "w", error="no")
    assert log.claim_job("w", ["b"]) is not None
    before = totals()
    assert before["default/a"] == (0, 0, 3, 2) and before["default/b"][2:] == (0, 0)
    clock.advance(100)
    assert remove(log) == 5 and totals() == before
    (one,) = (one for one in log.stats("jobs:default:0:a").groups)
    assert (one.published, one.dead, one.completed_total, one.exhausted_total) == (0, 0, 0, 2)
    log.append("orders", {}, type="t")
    log.create_group("orders", "g")
    assert [one.completed_total for one in log.stats("orders").groups] == [None]
    types_claimed(log, ["b"])
    done = totals()
    log.prune("jobs:default:1:b", upto=log.end(), keep_dead=False)
    assert totals() == done
    log.delete_group("jobs:default:0:a", "workers")
    assert totals()["default/a"] == (0, 0, 3, 0), "a group takes its totals along"


def nothing(payload: Any) -> None:
    """A job."""


@pytest.mark.shows("J06")
def test_an_engine_removes_jobs_beside_its_workers(log: penstock.Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RESULT_SECONDS", 0.0)
    monkeypatch.setattr(limits, "RETENTION_BATCH", 40)
    monkeypatch.setattr(LocalEngine, "retention_seconds", 0.0)
    with job_engine(log, job_type(nothing, keep_finished=0)) as engine:
        for _ in range(5):
            log.submit_many("a", [{"payload": {}}] * 60)
            wait_until(lambda: log.jobs(limit=1) == [], "all jobs have finished and left")
    assert engine.snapshot()["jobs:default:a"]["published"] == 300
    assert [(one.completed_total, one.exhausted_total) for one in log.stats().job_types] == [(300, 0)]


@pytest.mark.shows("K41")
def test_an_engine_whose_role_may_not_remove_goes_on(
    postgres_log: penstock.Log, postgres_log_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "RESULT_SECONDS", 0.0)
    postgres_log.declare_job("a", keep_finished=0)
    postgres_log.submit("a", {})
    types_claimed(postgres_log)
    with role_of("worker", postgres_log_url) as (url, owner), penstock.open(url) as log:
        user = url.partition("://")[2].partition("@")[0]
        owner.execute(f"revoke execute on function penstock.remove_jobs(integer, bigint[], bigint, bigint) from {user}")
        [retention] = [one for one in rounds(log, 0.0) if one.name == "remove finished jobs"]
        for _ in range(2):
            retention.tick()
    assert caplog.text.count("this role may not remove finished jobs") == 1
    assert len(postgres_log.jobs()) == 1

"""The verbs of jobs, killed before and after every statement: all of a verb happens, or nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import penstock
from penstock.testing import CrashPoint, StatementCounter, VirtualClock
from tests.support.forks import killed_in_child
from tests.support.jobs import types_claimed
from tests.support.logs import MakeLog

Facts = dict[str, Any]
Verb = Callable[[penstock.Log, str, Facts], object]


def set_up(log: penstock.Log, kind: str) -> Facts:
    """Five jobs: one held, one that has failed and is due, a unique one, and two that wait."""
    ids = [log.submit(kind, {"n": n}, unique="key" if n == 2 else None).id for n in range(5)]
    failing, held = log.claim_jobs("victim", [kind], limit=2)
    log.fail_job(failing.id, "victim", error="no", retry_in=0)
    return {"ids": ids, "held": held}


def do_claim(log: penstock.Log, kind: str, facts: Facts) -> object:
    return log.claim_jobs("victim", [kind], limit=3)


def do_complete(log: penstock.Log, kind: str, facts: Facts) -> object:
    held = facts["held"]
    return log.complete_job(held.id, "victim", token=held.token, result={"sent": 1})


def do_replace(log: penstock.Log, kind: str, facts: Facts) -> object:
    return log.submit(kind, {"n": 9}, unique="key", on_conflict="replace")


def do_cancel(log: penstock.Log, kind: str, facts: Facts) -> object:
    return log.cancel_job(facts["ids"][4])


VERBS: dict[str, Verb] = {"claim": do_claim, "complete": do_complete, "replace": do_replace, "cancel": do_cancel}


def seen(url: str, clock: VirtualClock, kind: str) -> list[Any]:
    with penstock.open(url, clock=clock) as log:
        return [(str(one.status), one.attempts, one.reason, one.result) for one in log.jobs(type=kind)]


def half_done(verb: str, before: list[Any], after: list[Any], done: list[Any]) -> list[Any]:
    """What is neither as before nor done. A claim of many takes retried and new jobs one after the other."""
    if verb == "claim":
        return [one for one, *both in zip(after, before, done, strict=True) if one not in both]
    return [] if after in (before, done) else after


@pytest.mark.shows("X02", "J02", "J04", "J15", "J17")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_of_jobs_killed_at_any_statement_happened_completely_or_not_at_all(
    make_log: MakeLog, clock: VirtualClock, log_url: str, verb: str
) -> None:
    with make_log(clock=clock) as log:  # a fork must not share connections
        facts = set_up(log, "count")
    counter = StatementCounter()
    with penstock.open(log_url, clock=clock, hook=counter) as log:
        counter.reset()
        VERBS[verb](log, "count", facts)
    steps = list(counter.blocks)
    done = seen(log_url, clock, "count")
    assert "commit" in steps
    kinds: list[list[Any]] = []
    for number in range(1, len(steps) + 1):
        for when in ("before", "after"):
            kind = f"{when}-{number}"
            with penstock.open(log_url, clock=clock) as log:
                facts = set_up(log, kind)
            before = seen(log_url, clock, kind)
            point = CrashPoint(when, number)

            def work(point: CrashPoint = point, kind: str = kind, facts: Facts = facts) -> None:
                victim = penstock.open(log_url, clock=clock, hook=point)
                point.arm()
                VERBS[verb](victim, kind, facts)

            assert killed_in_child(work), (when, number, steps)
            after = seen(log_url, clock, kind)
            assert half_done(verb, before, after, done) == [], f"killed {when} statement {number} of {steps}"
            kinds.append(after)
            with penstock.open(log_url, clock=clock) as log:
                clock.advance(120)
                types_claimed(log, [kind])
                ends = [job.status for job in log.jobs(type=kind)]
                assert len(ends) == len(after) and set(ends) <= {"PUBLISHED", "DEAD"}
                assert not log.submit(kind, {}, unique="key").duplicate, "the key is free again"
    assert done in kinds and kinds[0] != done, "some died before the commit, and some after it"


# --- retention --------------------------------------------------------------------------------------------------------


def finish_some(log: penstock.Log, clock: VirtualClock, kind: str) -> None:
    """Seven jobs whose time is over, or not: finished with and without a row, dead, cancelled, held, waiting."""
    log.declare_job(kind, keep_finished=0, keep_dead=1, retry=penstock.Retry(max_attempts=2))
    ids = [log.submit(kind, {"n": n}, unique="key" if n == 1 else None).id for n in range(7)]
    first, retried, dead, held = log.claim_jobs("victim", [kind], limit=4, lease_seconds=86_400)
    log.complete_job(first.id, "victim", result=1)
    for job, error in ((retried, "no"), (dead, penstock.Permanent("no"))):
        log.fail_job(job.id, "victim", error=error, retry_in=0 if job is retried else None)
    again = log.claim_job("victim", [kind])
    assert again is not None and again.id == retried.id and held.id == ids[3]
    log.complete_job(again.id, "victim")
    log.cancel_job(ids[4])
    clock.advance(60)


def kept(log: penstock.Log, kind: str) -> tuple[list[tuple[int, str]], list[int | None]]:
    """The jobs of a type that are left, and its totals; the counts of the type agree with them."""
    jobs = [(one.json()["n"], str(one.status)) for one in log.jobs(type=kind)]
    (stats,) = log.stats(f"jobs:default:0:{kind}").groups
    counts = {"PENDING": stats.pending, "CLAIMED": stats.claimed, "PUBLISHED": stats.published, "DEAD": stats.dead}
    assert Counter(status for _, status in jobs) == Counter(counts)
    return jobs, [stats.completed_total, stats.exhausted_total]


@pytest.mark.shows("X02", "J06")
@pytest.mark.timeout(300)
def test_retention_killed_at_any_statement_removed_a_step_completely_or_not_at_all(
    make_log: MakeLog, clock: VirtualClock, log_url: str
) -> None:
    with make_log(clock=clock) as log:  # a fork must not share connections
        finish_some(log, clock, "count")
    counter = StatementCounter()
    with penstock.open(log_url, clock=clock, hook=counter) as log:
        before = kept(log, "count")
        counter.reset()
        assert log.remove_finished_jobs().jobs == 4
        steps = list(counter.blocks)
        done = kept(log, "count")
    assert done[0] == [(3, "CLAIMED"), (5, "PENDING"), (6, "PENDING")] and before[0] != done[0]
    assert done[1] == before[1] == [2, 2]
    found = []
    for number in range(1, len(steps) + 1):
        for when in ("before", "after"):
            kind = f"{when}-{number}"
            with penstock.open(log_url, clock=clock) as log:
                finish_some(log, clock, kind)
            point = CrashPoint(when, number)

            def work(point: CrashPoint = point) -> None:
                victim = penstock.open(log_url, clock=clock, hook=point)
                point.arm()
                victim.remove_finished_jobs()

            assert killed_in_child(work), (when, number, steps)
            with penstock.open(log_url, clock=clock) as log:
                after = kept(log, kind)
                assert after in (before, done), f"killed {when} statement {number} of {steps}"
                found.append(after)
                log.remove_finished_jobs()
                assert kept(log, kind) == done
    assert before in found and done in found, "some died before the commit, and some after it"

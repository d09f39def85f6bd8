"""The verbs of jobs, killed before and after every statement: all of a verb happens, or nothing."""

from __future__ import annotations

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

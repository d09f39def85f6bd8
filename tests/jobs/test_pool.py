"""Jobs in several processes: each claims for itself, and what happens to one of them changes nothing for its jobs."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from tests.support.done_table import done_offsets
from tests.support.job_pool import JobPool, attack
from tests.support.notes import read_notes
from tests.support.running import watching
from tests.support.waiting import wait_until


@pytest.fixture
def small(tmp_path: Path) -> Iterator[JobPool]:
    """On SQLite only, because the store does not matter here."""
    made = JobPool(tmp_path, f"sqlite:///{tmp_path}/log.db")
    yield made
    made.gate.close()


@pytest.fixture
def pool(tmp_path: Path, log_url: str) -> Iterator[JobPool]:
    made = JobPool(tmp_path, log_url)
    yield made
    made.gate.close()


def at_work(pool: JobPool) -> set[int]:
    """The pool processes whose job has begun."""
    return {int(member) for _, member, _ in read_notes(pool.notes)}


@pytest.mark.shows("J09")
def test_processes_share_jobs_and_add_up_their_counts(pool: JobPool) -> None:
    command = ("worker",) if pool.url.startswith("sqlite") else ("run", "--engine", "local")
    pool.submit("wait", 6)
    with pool.run("--until-drained", "--quiet", command=command) as running:
        running.wait_until(lambda: len(at_work(pool)) == 2, "both at work")
        pool.gate.open()
        assert running.wait() == 0, running.err
    document = json.loads(running.out)
    assert document["groups"]["jobs:default:wait"]["published"] == 6 and document["member_deaths"] == 0
    assert running.pid not in at_work(pool)
    with penstock.open(pool.url) as log:
        assert [one.name for one in log.schedules()] == ["shop.nightly"]
        assert {one.attempts for one in log.jobs(type="wait")} == {1}


@pytest.mark.shows("J09", "K17")
def test_a_stop_lets_the_jobs_of_all_processes_end(small: JobPool) -> None:
    small.submit("wait", 6)
    with small.run("--types", "wait", "--concurrency", "2") as running:
        running.wait_until(lambda: len(read_notes(small.notes)) == 4, "two in each process")
        running.process.send_signal(signal.SIGTERM)
        running.wait_for_words("stopping")
        small.gate.open()
        assert running.wait() == 0, running.err
    assert json.loads(running.out)["groups"]["jobs:default:wait"]["published"] == 4
    assert small.statuses() == {"PUBLISHED": 4, "PENDING": 2}


@pytest.mark.shows("J09")
def test_orders_from_afar_reach_all_processes(small: JobPool) -> None:
    small.submit("wait", 2)
    with small.run("--quiet") as running, penstock.open(small.url) as log:
        running.wait_until(lambda: len(at_work(small)) == 2, "both at work")
        (run,) = log.runs()
        log.quiet_run(run.id, by="ada")
        running.wait_until(lambda: running.err.count("asked it to claim nothing new") >= 3, "everybody to hear it")
        small.gate.open()
        running.wait_until(lambda: small.statuses() == {"PUBLISHED": 2}, "both to end")
        small.submit("work", 20)
        log.resume_run(run.id, by="ada")
        running.wait_until(lambda: small.statuses() == {"PUBLISHED": 22}, "them to continue")
        log.stop_run(run.id, by="ada")
        assert running.wait() == 0, running.err
        assert log.runs(all=True)[0].outcome == "stopped"


@pytest.mark.shows("J09")
def test_a_second_signal_ends_all_processes_at_once(small: JobPool) -> None:
    """Their jobs come back when the leases have expired."""
    ids = small.submit("wait", 2)
    with small.run("--types", "wait") as running:
        running.wait_until(lambda: len(at_work(small)) == 2, "both at work")
        with watching(*at_work(small)) as wait_for_all:
            running.process.send_signal(signal.SIGTERM)
            running.wait_for_words("stopping")
            running.process.send_signal(signal.SIGTERM)
            assert running.wait() == 128 + signal.SIGTERM
            wait_for_all()
    with penstock.open(small.url) as log:
        wait_until(lambda: log.reap() > 0 or log.job(ids[0]).status == "PENDING", "the leases to expire")
        wait_until(lambda: log.reap() > 0 or small.statuses() == {"PENDING": 2}, "both leases to expire")
        assert done_offsets(small.url) == []


@pytest.mark.shows("J03", "X04")
def test_a_frozen_process_is_refused_when_it_goes_on(pool: JobPool) -> None:
    """Its job is done by the other process; its own late report changes nothing, and its effect is not stored."""
    (job,) = pool.submit("wait", 1)
    with pool.run("--types", "wait", "--until-drained") as running:
        running.wait_until(lambda: len(at_work(pool)) == 1, "one at work")
        (frozen,) = at_work(pool)
        pool.freeze(frozen)
        try:
            running.wait_until(lambda: len(at_work(pool)) == 2, "the other one to take it")
            pool.gate.open()
            running.wait_until(lambda: pool.statuses() == {"PUBLISHED": 1}, "the job to be done")
        finally:
            os.kill(frozen, signal.SIGCONT)
        assert running.wait() == 0, running.err
    document = json.loads(running.out)
    counts = document["groups"]["jobs:default:wait"]
    assert (counts["published"], document["member_deaths"]) == (1, 0) and counts["lost"] >= 1
    with penstock.open(pool.url) as log:
        assert log.job(job).attempts == log.job(job).failures + 1 >= 2
    assert done_offsets(pool.url) == [0]


@pytest.mark.shows("K16", "X04", "J04")
@pytest.mark.timeout(180)
def test_killed_and_frozen_processes_lose_and_double_nothing(pool: JobPool) -> None:
    pool.submit("work", 2_000, seconds=0.003)
    with pool.run("--types", "work", "--until-drained", "--quiet", processes=3) as running:
        assert attack(pool, running, rounds=2, every=400, seed=7) == ["kill", "freeze"]
        assert running.wait() == 0, running.err
    assert json.loads(running.out)["member_deaths"] == 1
    pool.check(2_000)

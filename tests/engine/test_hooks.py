"""`@app.on_start` and `@app.on_stop`: once in every process in which handlers or jobs run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.declare.around import Around, hook_of
from penstock.declare.job import JobType
from penstock.declare.subscription import Subscription
from penstock.engine.local.engine import LocalEngine
from penstock.testing import Harness
from tests.support.children import around
from tests.support.declarations import subscription
from tests.support.job_engine import job_engine, job_type, run_jobs_until_drained
from tests.support.local_engine import PATIENCE_SECONDS, run_local_until_drained
from tests.support.log_steps import count_published
from tests.support.notes import read_notes
from tests.support.running import Gate
from tests.support.waiting import wait_until

ONCE = penstock.Retry(max_attempts=1)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[penstock.Log]:
    """A log in a file: hooks do not touch the store."""
    with penstock.open(f"sqlite:///{tmp_path}/log.db") as log:
        yield log


def hooks(start: list[Any], stop: list[Any]) -> Around:
    return Around([], [hook_of(one) for one in start], [hook_of(one) for one in stop])


def within(one: Subscription, start: list[Any], stop: list[Any]) -> Subscription:
    one.around = hooks(start, stop)
    return one


def job_within(one: JobType, start: list[Any], stop: list[Any]) -> JobType:
    return replace(one, around=hooks(start, stop))


def verbs(notes: Path) -> list[str]:
    return [line[0] for line in read_notes(notes)]


def test_each_runs_once_around_all_calls_of_a_process(log: penstock.Log, notes: Path, caplog: Any) -> None:
    for _ in range(3):
        log.append("orders", {}, type="t")
    one = subscription(around.handle, retry=ONCE)
    run_local_until_drained(log, within(one, [around.start, around.start_again], [around.stop, around.stop_badly]))
    assert verbs(notes) == ["start", "again", "handle", "handle", "handle", "badly", "stop"]
    ids = {line[1] for line in read_notes(notes) if line[0] != "handle"}
    assert len(ids) == 1 and str(os.getpid()) not in ids


def test_a_new_process_starts_anew_and_a_killed_one_does_not_stop(log: penstock.Log, notes: Path) -> None:
    for do in ("exit", None):
        log.append("orders", {"do": do}, type="t")
    run_local_until_drained(log, within(subscription(around.handle, retry=ONCE), [around.start], [around.stop]))
    said = verbs(notes)
    assert said.count("start") == 2 and said.count("stop") == 1 and said[-1] == "stop"


def test_groups_that_share_a_process_share_its_life(log: penstock.Log, notes: Path) -> None:
    shared = hooks([around.start], [around.stop])
    groups = [subscription(around.handle, group=name, isolation="inline") for name in ("a", "b")]
    for one in groups:
        one.around = shared
    log.append("orders", {}, type="t")
    run_local_until_drained(log, *groups)
    assert verbs(notes) == ["start", "handle", "handle", "stop"]
    assert read_notes(notes)[0][1] == str(os.getpid())


@pytest.mark.parametrize("isolation", ["process", "inline"])
def test_a_start_that_raises_ends_the_engine_before_anything_is_claimed(
    log: penstock.Log, notes: Path, isolation: str
) -> None:
    log.append("orders", {}, type="t")
    one = subscription(around.handle, isolation=isolation)
    with pytest.raises(penstock.StartFailed, match="refuse raised ConnectionError: the pool cannot be opened"):
        run_local_until_drained(log, within(one, [around.start, around.refuse], [around.stop]))
    assert verbs(notes) == ["start", "refuse"]
    assert log.deliveries("orders", "g")[0].attempts == 0


def test_a_start_that_fails_later_is_tried_again_and_blames_no_event(
    log: penstock.Log, notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    down = tmp_path / "down"
    monkeypatch.setenv("PENSTOCK_DOWN", str(down))
    monkeypatch.setattr("penstock.engine.worker._RELOAD_SECONDS", 0.05)
    engine = LocalEngine(log, [within(subscription(around.handle, retry=ONCE), [around.refuse_again], [])])
    engine.start()
    try:
        wait_until(lambda: "start" in verbs(notes))
        down.touch()
        log.append("orders", {"do": "exit"}, type="t")
        log.append("orders", {}, type="t")
        wait_until(lambda: verbs(notes).count("start") > 2)
        down.unlink()
        wait_until(lambda: count_published(log) == 1)
    finally:
        engine.stop()
        engine.wait(PATIENCE_SECONDS)
    assert [(str(one.state), one.failures) for one in log.deliveries("orders", "g")] == [("DEAD", 1), ("PUBLISHED", 0)]


def test_async_hooks_run_in_the_loop_of_async_handlers(log: penstock.Log, notes: Path) -> None:
    log.append("orders", {}, type="t")
    log.submit("a", {})
    run_local_until_drained(log, within(subscription(around.in_the_loop), [around.start_async], [around.stop_async]))
    run_jobs_until_drained(log, job_within(job_type(around.job_in_the_loop), [around.start_async], [around.stop_async]))
    said = read_notes(notes)
    assert [line[0] for line in said] == ["start", "handle", "stop", "start", "job", "stop"]
    assert {line[-1] for line in said if line[0] != "start"} == {"True"}


@pytest.mark.parametrize("isolation", ["process", "inline"])
def test_async_hooks_around_plain_handlers_have_a_loop_too(log: penstock.Log, notes: Path, isolation: str) -> None:
    around.loops.clear()
    log.append("orders", {}, type="t")
    one = subscription(around.handle, isolation=isolation)
    run_local_until_drained(log, within(one, [around.start_async], [around.stop_async]))
    assert verbs(notes) == ["start", "handle", "stop"] and read_notes(notes)[-1][-1] == "True"


def test_jobs_have_them_in_their_process(log: penstock.Log, notes: Path) -> None:
    log.submit_many("a", [{"payload": {}}, {"payload": {}}])
    run_jobs_until_drained(log, job_within(job_type(around.job), [around.start], [around.stop]))
    assert verbs(notes) == ["start", "job", "job", "stop"] and len({line[1] for line in read_notes(notes)}) == 1
    with pytest.raises(penstock.StartFailed, match="refuse"):
        run_jobs_until_drained(log, job_within(job_type(around.job), [around.refuse], []))


@pytest.mark.shows("K43")
def test_a_suspects_lease_lives_while_its_fresh_process_starts(
    log: penstock.Log, notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process for a job that killed one before starts longer than the lease lasts; heartbeats go on meanwhile."""
    gate = Gate(tmp_path / "gate")
    monkeypatch.setenv("PENSTOCK_GATE", str(tmp_path / "gate"))
    job = log.submit("a", {"do": "exit"}).id
    retry = penstock.Retry(max_attempts=2, base_seconds=0)
    one = job_type(around.job, lease_seconds=1.0, heartbeat_seconds=0.2, retry=retry)
    with job_engine(log, job_within(one, [around.wait_at_gate], [])):
        wait_until(lambda: "waits" in verbs(notes))
        wait_until(lambda: _beats_longer_than_a_second(log.job(job)))
        gate.open()
        wait_until(lambda: log.job(job).status == "DEAD")
    gate.close()
    assert (log.job(job).attempts, log.job(job).failures, log.job(job).error_code) == (2, 2, "process_died")


def _beats_longer_than_a_second(job: penstock.Job) -> bool:
    if job.attempts != 2 or job.heartbeat_at is None or job.claimed_at is None:
        return False
    return job.heartbeat_at - job.claimed_at > timedelta(seconds=1)


def test_a_harness_calls_them(notes: Path) -> None:
    app = penstock.App(name="shop")
    app.subscribe("orders", group="g")(around.handle)
    app.on_start(around.start)
    app.on_stop(around.stop)
    with Harness(app) as harness:
        harness.append("orders", {})
        assert harness.drain().published == 1
    assert verbs(notes) == ["start", "handle", "stop"]


def generator() -> Any:
    yield


@pytest.mark.parametrize("bad", [generator, lambda event: None, lambda *, x: None, "x"])
def test_what_is_no_hook_is_refused(bad: Any) -> None:
    app = penstock.App()
    for declare in (app.on_start, app.on_stop):
        with pytest.raises(penstock.InvalidHook):
            declare(bad)
    assert app.around.on_start == app.around.on_stop == []

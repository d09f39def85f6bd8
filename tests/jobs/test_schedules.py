"""Schedules: every run once, however many submit it; missed ones collapse; right over changes of the clock."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

import penstock
from penstock.core.cron import next_runs
from penstock.testing import VirtualClock
from tests.support.children import jobs as functions
from tests.support.job_engine import job_engine
from tests.support.jobs import types_claimed
from tests.support.logs import MakeLog
from tests.support.notes import read_notes
from tests.support.waiting import wait_until


def at(*when: int) -> datetime:
    return datetime(*when, tzinfo=UTC)  # type: ignore[arg-type]


@pytest.mark.shows("J12")
def test_a_run_is_submitted_once_whoever_submits_it(make_log: MakeLog, clock: VirtualClock) -> None:
    logs = [make_log(clock=clock) for _ in range(3)]
    made = logs[0].schedule("nightly", "0 3 * * *", type="report", payload={"x": 1})
    assert made.next_at == at(2026, 1, 1, 3)
    clock.advance(3 * 3600 - 1)
    assert [log.tick_schedules() for log in logs] == [[], [], []]
    clock.advance(1)
    threads = [threading.Thread(target=log.tick_schedules) for log in logs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (job,) = logs[0].jobs()
    assert (job.type, job.json()) == ("report", {"x": 1})
    (shown,) = logs[0].schedules()
    assert (shown.last_at, shown.last_job, shown.next_at) == (at(2026, 1, 1, 3), job.id, at(2026, 1, 2, 3))
    assert shown.next_runs(3) == [at(2026, 1, 2, 3), at(2026, 1, 3, 3), at(2026, 1, 4, 3)]


@pytest.mark.shows("J12")
def test_missed_runs_collapse_to_one(clocked: penstock.Log, clock: VirtualClock) -> None:
    clocked.schedule("hourly", "0 * * * *", type="report")
    clock.advance(10.5 * 3600)
    assert len(clocked.tick_schedules()) == 1 and clocked.tick_schedules() == []
    assert clocked.schedules()[0].last_at == at(2026, 1, 1, 10)
    assert clocked.schedules()[0].next_at == at(2026, 1, 1, 11)


@pytest.mark.shows("J12")
def test_a_run_waits_for_the_last_one(clocked: penstock.Log, clock: VirtualClock) -> None:
    clocked.schedule("hourly", "0 * * * *", type="report")
    clock.advance(3600)
    assert len(clocked.tick_schedules()) == 1
    job = clocked.claim_job("w", ["report"], lease_seconds=86_400)
    assert job is not None
    clock.advance(3 * 3600)
    assert clocked.tick_schedules() == [], "the first one is still running"
    clocked.complete_job(job.id, "w")
    assert len(clocked.tick_schedules()) == 1
    assert clocked.schedules()[0].last_at == at(2026, 1, 1, 4)


@pytest.mark.shows("J12", "J19")
def test_schedules_are_suspended_resumed_run_changed_and_deleted(clocked: penstock.Log, clock: VirtualClock) -> None:
    clocked.schedule("hourly", "0 * * * *", type="report", payload={"v": 1})
    clocked.suspend_schedule("hourly", by="ada")
    clock.advance(5 * 3600)
    assert clocked.tick_schedules() == [] and clocked.schedules()[0].next_runs() == []
    resumed = clocked.resume_schedule("hourly")
    assert resumed.next_at == at(2026, 1, 1, 6) and clocked.tick_schedules() == []
    now = clocked.run_schedule("hourly", by="ada")
    assert (now.type, now.json()) == ("report", {"v": 1})
    assert types_claimed(clocked, ["report"]) == ["report"]
    changed = clocked.schedule("hourly", "30 * * * *", type="report", payload={"v": 2})
    assert changed.next_at == at(2026, 1, 1, 5, 30)
    same = clocked.schedule("hourly", "30 * * * *", type="report", payload={"v": 3})
    assert same.next_at == at(2026, 1, 1, 5, 30)
    clock.advance(1800)
    (job,) = clocked.tick_schedules()
    assert clocked.job(job).json() == {"v": 3}
    clocked.delete_schedule("hourly")
    assert clocked.schedules() == []
    for verb in (clocked.suspend_schedule, clocked.run_schedule, clocked.delete_schedule):
        with pytest.raises(penstock.UnknownSchedule):
            verb("hourly")


@pytest.mark.shows("J12", "J19")
@pytest.mark.parametrize(
    ("cron", "tz"),
    [
        ("61 * * * *", "UTC"),
        ("* * * *", "UTC"),
        ("0 0 3 * * *", "UTC"),
        ("0 0 31 2 *", "UTC"),  # never
        ("nonsense", "UTC"),
        ("", "UTC"),
        ("0 3 * * *", "Mars/Olympus"),
        ("0 3 * * *", "../etc/passwd"),
        ("0 3 * * *", ""),
    ],
)
def test_bad_schedules_are_refused(log: penstock.Log, cron: str, tz: str) -> None:
    with pytest.raises(penstock.InvalidSchedule):
        log.schedule("s", cron, type="a", tz=tz)
    assert log.schedules() == []
    app = penstock.App("sqlite:///never.db")
    with pytest.raises(penstock.InvalidSchedule):
        app.schedule(cron, tz=tz)(functions.plain)


@pytest.mark.shows("J19")
def test_runs_are_right_over_daylight_saving_changes() -> None:
    spring = next_runs("30 2 * * *", "Europe/Berlin", at(2026, 3, 27, 12), 3)
    assert spring == [at(2026, 3, 28, 1, 30), at(2026, 3, 29, 1, 0), at(2026, 3, 30, 0, 30)], "2:30 does not exist"
    autumn = next_runs("30 2 * * *", "Europe/Berlin", at(2026, 10, 24, 12), 2)
    assert autumn == [at(2026, 10, 25, 0, 30), at(2026, 10, 26, 1, 30)], "2:30 comes twice, and runs once"
    noon = next_runs("0 12 * * *", "Europe/Berlin", at(2026, 3, 28, 0), 2)
    assert noon == [at(2026, 3, 28, 11), at(2026, 3, 29, 10)]


@pytest.mark.shows("J12", "J19")
def test_an_engine_declares_and_runs_schedules(log: penstock.Log, notes: Path) -> None:
    app = penstock.App(log.store.url, name="shop")
    app.schedule("0 0 1 1 *", tz="Europe/Berlin")(functions.nightly)
    with job_engine(log, *app.jobs, schedules=app.schedules):
        (shown,) = log.schedules()
        assert (shown.name, shown.cron, shown.tz, shown.type) == (
            "shop.nightly",
            "0 0 1 1 *",
            "Europe/Berlin",
            "shop.nightly",
        )
        log.run_schedule("shop.nightly")
        wait_until(lambda: read_notes(notes) == [["nightly", "1"]], "its run")
    with pytest.raises(penstock.PolicyConflict):
        app.schedule("0 0 1 1 *")(functions.nightly)

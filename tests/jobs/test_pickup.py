"""An idle worker starts a job when it is told of it, and finds it by looking where nobody tells."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import penstock
from penstock.engine.local.engine import LocalEngine
from tests.engine.test_idle_workers import never_look, only_look  # noqa: F401  # fixtures
from tests.support.children import jobs as functions
from tests.support.job_engine import job_engine, job_type
from tests.support.logs import MakeLog
from tests.support.notes import read_notes
from tests.support.waiting import wait_until


def is_idle(engine: LocalEngine) -> bool:
    """Whether the worker waits, and the look-out has looked since."""
    waiting = list(engine.lookout._waiting)
    return len(waiting) == 1 and waiting[0].seen is not None and waiting[0].next_look > time.monotonic()


@pytest.mark.shows("J10")
@pytest.mark.usefixtures("never_look")
def test_a_notification_wakes_an_idle_job_worker(postgres_log_url: str, notes: Path) -> None:
    with (
        penstock.open(postgres_log_url) as log,
        penstock.open(postgres_log_url) as other,
        job_engine(log, job_type(functions.plain)) as engine,
    ):
        for n in range(3):
            wait_until(lambda: is_idle(engine))
            other.submit("a", {"n": n}, priority=n)
            wait_until(lambda n=n: len(read_notes(notes)) > n)  # type: ignore[misc]
        assert engine.lookout.woke["notified"] >= 3


@pytest.mark.shows("J10")
@pytest.mark.usefixtures("only_look")
def test_an_idle_job_worker_looks_where_nobody_tells(
    log: penstock.Log, make_log: MakeLog, monkeypatch: pytest.MonkeyPatch, notes: Path
) -> None:
    other = make_log()
    monkeypatch.setattr("penstock.stores.wake.Seldom.due", lambda self: False)
    with job_engine(log, job_type(functions.plain)) as engine:
        for n in range(3):
            wait_until(lambda: is_idle(engine))
            other.submit("a", {"n": n}, priority=n)
            wait_until(lambda n=n: len(read_notes(notes)) > n)  # type: ignore[misc]
        assert engine.lookout.woke["polled"] and not engine.lookout.woke["notified"]

"""A run is a row: written at the start, kept alive, obeyed and ended; without a heartbeat it counts as lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

import penstock
from penstock.core import limits
from penstock.engine import maintenance
from penstock.engine.foreground import StopNotice, run_local
from penstock.engine.local.engine import LocalEngine
from penstock.engine.outcome import Outcome
from penstock.log.runs import NewRun
from penstock.testing import VirtualClock
from tests.support.declarations import subscription
from tests.support.local_engine import PATIENCE_SECONDS
from tests.support.logs import MakeLog
from tests.support.raw_sql import raw
from tests.support.waiting import wait_until


@pytest.fixture(autouse=True)
def quick_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RUN_BEAT_SECONDS", 0.05)


class RunInThread:
    """A run in a thread, as `penstock run --engine local` has it in the foreground."""

    def __init__(self, log: penstock.Log, **policy: Any) -> None:
        self.seen: list[int] = []
        self.outcome: Outcome | None = None
        self.error: BaseException | None = None

        def note(event: penstock.Event) -> None:
            self.seen.append(event.offset)

        def run() -> None:
            try:
                self.outcome = run_local(log, [subscription(note, isolation="inline", **policy)], app="shop")
            except BaseException as error:
                self.error = error

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()


@contextmanager
def run_in_thread(log: penstock.Log, **policy: Any) -> Iterator[RunInThread]:
    run = RunInThread(log, **policy)
    try:
        wait_until(lambda: bool(log.runs()))
        yield run
    finally:
        for one in log.runs():
            log.stop_run(one.id, by="test")
        run.thread.join(PATIENCE_SECONDS)
        assert not run.thread.is_alive()


@pytest.mark.shows("K42", "J17")
def test_a_run_has_a_row_with_a_heartbeat_and_an_outcome(log: penstock.Log) -> None:
    with run_in_thread(log) as run:
        (row,) = log.runs()
        assert (row.app, row.engine, row.groups, row.wanted) == ("shop", "local", ("orders/g",), "run")
        assert row.state == "running" and row.ended_at is None and row.host and row.pid and row.version
        wait_until(lambda: log.runs()[0].heartbeat_at > row.heartbeat_at)
        log.append("orders", {}, type="t")
        wait_until(lambda: run.seen == [1])
        with raw(log.store.url) as sql:
            assert sql("select distinct run from penstock.leases") == [(row.id,)]
        told = log.stop_run(row.id, by="ada")
        assert told.wanted == "stop"
        run.thread.join(PATIENCE_SECONDS)
        assert not run.thread.is_alive() and run.error is None
    assert log.runs() == []
    (row,) = log.runs(all=True)
    assert row.state == "ended" and row.outcome == "stopped" and row.ended_at is not None
    with raw(log.store.url) as sql:
        assert next(tuple(one) for one in sql("select by, action from penstock.audit")) == ("ada", "run_stop")


def test_a_run_that_ends_at_once_waits_for_its_stop_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever stops a run may be slow to announce it: the end of the run waits for that, and for its observers."""
    notice, told = StopNotice(), threading.Event()
    start, begun, go_on = threading.Thread.start, threading.Event(), threading.Event()

    def slowly(self: threading.Thread) -> None:
        if self.name == "penstock-stopping":
            begun.set()
            assert go_on.wait(PATIENCE_SECONDS)
        start(self)

    monkeypatch.setattr(threading.Thread, "start", slowly)
    monkeypatch.setattr("penstock.engine.foreground.everyone.emit", lambda event: told.set())
    stopping = threading.Thread(target=notice.stopping, args=(lambda: None,), daemon=True)
    stopping.start()
    assert begun.wait(PATIENCE_SECONDS)
    waiting = threading.Thread(target=notice.wait, daemon=True)
    waiting.start()
    go_on.set()
    waiting.join(PATIENCE_SECONDS)
    assert told.is_set() and not waiting.is_alive()


@pytest.mark.shows("J17")
def test_a_quiet_run_claims_nothing_until_it_is_resumed(log: penstock.Log) -> None:
    with run_in_thread(log) as run:
        (row,) = log.runs()
        log.append("orders", {}, type="t")
        wait_until(lambda: run.seen == [1])
        log.quiet_run(row.id)
        wait_for_beats(log, 3)
        log.append("orders", {}, type="t")
        wait_for_beats(log, 3)
        assert run.seen == [1]
        assert log.stats().groups[0].claimed == 0
        log.resume_run(row.id)
        wait_until(lambda: run.seen == [1, 2])


def wait_for_beats(log: penstock.Log, count: int) -> None:
    for _ in range(count):
        before = log.runs()[0].heartbeat_at
        wait_until(lambda before=before: log.runs()[0].heartbeat_at > before)  # type: ignore[misc]


def test_an_error_that_ends_a_run_is_recorded_as_its_outcome(log: penstock.Log) -> None:
    log.create_group("orders", "g", types=["other.*"])
    run = RunInThread(log)
    run.thread.join(PATIENCE_SECONDS)
    assert isinstance(run.error, penstock.PenstockError)
    (row,) = log.runs(all=True)
    assert row.state == "ended" and row.outcome == f"failed: {run.error.code}"


def new_run(name: str = "host/1") -> NewRun:
    return NewRun(name, None, "local", "1", "host", 1, ["orders/g"])


@pytest.mark.shows("K42")
def test_a_run_without_a_heartbeat_counts_as_lost(clocked: penstock.Log, clock: VirtualClock) -> None:
    run = clocked.start_run(new_run())
    clock.advance(seconds=limits.RUN_LOST_SECONDS)
    assert [one.state for one in clocked.runs()] == ["running"]
    clock.advance(seconds=1)
    assert [one.state for one in clocked.runs()] == ["lost"]
    assert clocked.beat_run(run) == "run"  # it was only slow
    assert [one.state for one in clocked.runs()] == ["running"]


def test_requests_to_an_ended_run_change_nothing(log: penstock.Log) -> None:
    run = log.start_run(new_run())
    log.end_run(run, "stopped")
    log.end_run(run, "failed: something else")  # the first outcome counts
    assert log.stop_run(run).wanted == "run"
    assert [one.outcome for one in log.runs(all=True)] == ["stopped"]
    with pytest.raises(penstock.PenstockError) as caught:
        log.stop_run(4711)
    assert caught.value.code == "unknown_run"
    for odd in (-1, 2**63, "x", True):
        with pytest.raises(penstock.PenstockError) as caught:
            log.stop_run(odd)  # type: ignore[arg-type]
        assert caught.value.code == "invalid_input"
    with raw(log.store.url) as sql:
        assert sql("select count(*) from penstock.audit") == [(0,)]


@pytest.mark.shows("K42")
def test_a_run_waits_for_a_lost_database(postgres_log_url: str, caplog: pytest.LogCaptureFixture) -> None:
    name = postgres_log_url.rpartition("/")[2]
    maintenance = postgres_log_url.rpartition("/")[0] + "/postgres"
    with (
        psycopg.connect(maintenance, autocommit=True) as server,
        penstock.open(postgres_log_url, patience_seconds=1) as log,
        run_in_thread(log) as run,
    ):
        server.execute(f"alter database {name} allow_connections false")
        server.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", (name,))
        wait_until(lambda: "no heartbeat" in caplog.text)
        server.execute(f"alter database {name} allow_connections true")
        wait_until(lambda: _beats(log))
        assert run.thread.is_alive() and run.error is None
        log.append("orders", {}, type="t")
        wait_until(lambda: run.seen == [1])


def _beats(log: penstock.Log) -> bool:
    try:
        (row,) = log.runs()
        wait_until(lambda: log.runs()[0].heartbeat_at > row.heartbeat_at, seconds=5)
    except (penstock.PenstockError, AssertionError, psycopg.Error):
        return False
    return True


def test_several_logs_see_each_others_runs(log: penstock.Log, make_log: MakeLog) -> None:
    first, second = log.start_run(new_run("a/1")), make_log().start_run(new_run("b/2"))
    assert [(one.id, one.name) for one in log.runs()] == [(second, "b/2"), (first, "a/1")]


@pytest.mark.shows("K38")
def test_an_engine_reaps_only_its_own_groups(
    clocked: penstock.Log, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "_REAP_SECONDS", 0.0)
    for group in ("g", "other"):
        clocked.create_group("orders", group)
        clocked.append("orders", {}, type="t")
        clocked.claim("orders", group, claimed_by="gone")
    clock.advance(seconds=120)
    clocked.pause("orders", "g")  # it is reaped, but nothing is claimed

    def outcomes() -> list[tuple[str, str | None]]:
        with raw(clocked.store.url) as sql:
            return sql(
                "select group_name, outcome from penstock.leases join penstock.groups using (group_id) order by 1"
            )

    engine = LocalEngine(clocked, [subscription(lambda event: None, isolation="inline")])
    engine.start()
    try:
        wait_until(lambda: outcomes()[0] == ("g", "expired"))
    finally:
        engine.stop()
        assert engine.wait(PATIENCE_SECONDS)
    assert outcomes() == [("g", "expired"), ("other", None)]

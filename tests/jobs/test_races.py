"""What meets a job just before it begins or after it has ended: messages, cancels, and the loss of its lease."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.core.batch import Events
from penstock.core.columns import COLUMNS, RowColumns
from penstock.engine.isolation import wire
from penstock.engine.isolation.marks import Marks
from penstock.engine.jobs import doomed
from penstock.engine.jobs.batch import Batch
from penstock.engine.jobs.inbox import Inbox
from penstock.engine.jobs.messages import Outcomes, Recall
from penstock.engine.jobs.places import Places
from tests.support.children import jobs as functions
from tests.support.job_engine import job_engine, job_type, run_jobs_until_drained
from tests.support.local_engine import PATIENCE_SECONDS
from tests.support.notes import read_notes
from tests.support.running import Gate
from tests.support.waiting import wait_until

MANY = 400  # jobs after which a type is known to be quick, and its jobs share leases


@pytest.fixture
def ends() -> Any:
    engine, process = socket.socketpair()
    with engine, process:
        yield engine, process


@pytest.mark.shows("J10")
def test_who_has_no_work_reads_unless_the_other_thread_has_just_brought_some(ends: Any) -> None:
    """The thread that works saw an empty queue; before it reads, the other one takes a message that brings a job."""
    engine, process = ends
    taken: list[Any] = []
    inbox = Inbox(process, lambda header, body: taken.append(header), lambda: None)
    inbox.is_busy()
    wire.send(engine, Recall(1))
    wait_until(lambda: taken == [Recall(1)], "the other thread to read")
    answers: list[bool] = []
    reading = threading.Thread(target=lambda: answers.append(inbox.read(lambda: True)), daemon=True)
    reading.start()
    reading.join(PATIENCE_SECONDS)
    assert answers == [True], "it waits for another message"
    wire.send(engine, Recall(2))
    assert inbox.read(lambda: False) and taken[1:] == [Recall(2)]
    engine.close()
    assert not inbox.read(lambda: False)


@pytest.mark.shows("J17")
def test_an_async_job_that_is_cancelled_before_its_first_step_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    places, sent = async_places()
    create = asyncio.create_task

    def create_and_cancel(coroutine: Any) -> asyncio.Task[None]:
        task = create(coroutine)
        task.cancel()
        return task

    monkeypatch.setattr(asyncio, "create_task", create_and_cancel)
    places.start()
    for number in (1, 2, 3):  # more than there are places
        places.feed(number, one_event(), token=1)
        wait_until(lambda n=number: any(n in one.ended for one in sent), f"round {number}")  # type: ignore[misc]
        assert list(places._slots) == [0, 0]


async def _until_cancelled(payload: Any) -> None:
    await asyncio.Event().wait()


def async_places() -> tuple[Places, list[Outcomes]]:
    sent: list[Outcomes] = []
    return Places(job_type(_until_cancelled, concurrency=2), Marks(2, 0, shared=True), sent.append), sent


def one_event() -> Events:
    row = tuple(b"{}" if name == "payload" else None for name in COLUMNS)
    return Events(RowColumns([row]), "jobs:default:0:a", None)


@pytest.mark.shows("J17", "J14")
def test_a_cancelled_job_that_was_given_back_costs_nobody_his_process(
    log: penstock.Log, notes: Path, tmp_path: Path
) -> None:
    """It waits behind a long one in the same lease. What has not begun is asked back: nobody will report its end."""
    gate = Gate(tmp_path / "gate")
    with job_engine(log, job_type(functions.gated, heartbeat_seconds=0.1)) as engine:
        log.submit_many("a", [{"payload": {"n": -1}} for _ in range(MANY)])
        wait_until(lambda: len(read_notes(notes)) == 2 * MANY, "the quick ones")
        wait_until(lambda: engine.idle, "the last settle")
        batch = [{"payload": {"n": n, "gate": str(tmp_path / "gate") if n == 0 else None}} for n in range(50)]
        ids = log.submit_many("a", batch).ids
        wait_until(lambda: ["0", "began"] in read_notes(notes), "the long one to begin")
        log.cancel_job(ids[40])
        wait_until(lambda: log.job(ids[40]).status == "DEAD", "the cancelled one to end")
        assert len(engine._job_workers[0]._doomed) == 0
        gate.open()
        wait_until(lambda: log.job(ids[49]).status == "PUBLISHED", "the others")
        assert engine.snapshot()["jobs:default:a"]["deaths"] == 0
    gate.close()
    assert (log.job(ids[0]).status, log.job(ids[0]).attempts) == ("PUBLISHED", 1)
    assert log.job(ids[40]).error_code == "cancelled" and ["40", "began"] not in read_notes(notes)


@pytest.mark.shows("J03")
def test_a_running_job_of_a_lost_lease_is_told_though_its_neighbours_go_on(
    log: penstock.Log, notes: Path, tmp_path: Path
) -> None:
    """Reports of neighbours arrive between the loss and the answer that says what still runs."""
    with job_engine(log, job_type(functions.long_once, concurrency=2, heartbeat_seconds=0.1)) as engine:
        log.submit_many("a", [{"payload": {"n": -1}} for _ in range(MANY)])
        wait_until(lambda: len(read_notes(notes)) == MANY, "the quick ones")
        wait_until(lambda: engine.idle, "the last settle")
        mark = str(tmp_path / "mark")
        ids = log.submit_many("a", [{"payload": {"n": n, "mark": mark if n == 0 else None}} for n in range(MANY)]).ids
        wait_until(lambda: ["0", "began"] in read_notes(notes), "the long one to begin")
        log.rewind(log.job(ids[0]).stream, "workers", to="beginning")  # ends the lease, as an expiry would
        wait_until(lambda: ["0", "told"] in read_notes(notes), "it to be told")
        wait_until(lambda: all(log.job(one).status == "PUBLISHED" for one in (ids[0], ids[-1])), "all to end")
        assert engine.snapshot()["jobs:default:a"]["deaths"] == 0


@pytest.mark.shows("J03", "J17")
def test_a_job_of_a_lost_lease_that_does_not_listen_ends_with_its_process(
    log: penstock.Log, notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker holds nothing else, and nobody else is blamed."""
    monkeypatch.setattr(doomed, "GRACE_SECONDS", 0.2)
    gate = Gate(tmp_path / "gate")
    job_id = log.submit("a", {"gate": str(tmp_path / "gate")}).id
    with job_engine(log, job_type(functions.gated, heartbeat_seconds=0.1)) as engine:
        wait_until(lambda: len(read_notes(notes)) == 1, "it to begin")
        stream = log.job(job_id).stream
        log.pause(stream, "workers")
        log.rewind(stream, "workers", to="beginning")  # ends the lease, as an expiry would
        wait_until(lambda: engine.snapshot()["jobs:default:a"]["deaths"] == 1, "its process to be killed")
        assert (log.job(job_id).status, log.job(job_id).failures) == ("PENDING", 0)
        gate.open()
        log.resume(stream, "workers")
        wait_until(lambda: log.job(job_id).status == "PUBLISHED", "it to be done again")
    gate.close()
    assert [words[1] for words in read_notes(notes)] == ["began", "began", "ended"]


@pytest.mark.shows("J03")
def test_a_settle_that_is_refused_gives_the_lease_back_and_ends_what_runs(
    log: penstock.Log, notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The running job would have been kept in a lease of its own; as it is, its lease is gone."""
    refused: list[int] = []
    settle = Batch.settle

    def refuse_once(self: Batch, running: Collection[int] = ()) -> Any:
        if running and not refused:
            refused.extend(running)
            raise ValueError("a value cannot be stored")
        return settle(self, running)

    monkeypatch.setattr(Batch, "settle", refuse_once)
    with job_engine(log, job_type(functions.long_once, concurrency=2, heartbeat_seconds=0.1)) as engine:
        log.submit_many("a", [{"payload": {"n": -1}} for _ in range(MANY)])
        wait_until(lambda: len(read_notes(notes)) == MANY, "the quick ones")
        wait_until(lambda: engine.idle, "the last settle")
        mark = str(tmp_path / "mark")
        ids = log.submit_many("a", [{"payload": {"n": n, "mark": mark if n == 0 else None}} for n in range(MANY)]).ids
        wait_until(lambda: ["0", "told"] in read_notes(notes), "the long one to be told")
        wait_until(lambda: all(log.job(one).status == "PUBLISHED" for one in (ids[0], ids[-1])), "all to end")
        assert refused and engine.snapshot()["jobs:default:a"]["deaths"] == 0


@pytest.mark.shows("X08", "J18")
@pytest.mark.parametrize("concurrency", [1, 3])
def test_what_a_job_says_and_returns_stops_no_worker(log: penstock.Log, notes: Path, concurrency: int) -> None:
    ids = log.submit_many("a", [{"payload": {"n": n}} for n in range(len(functions.ODD_TEXTS))]).ids
    hostile = log.submit("a", {"n": 9, "hostile": True}, max_attempts=1).id
    run_jobs_until_drained(log, job_type(functions.odd, concurrency=concurrency))
    assert [log.job(one).status for one in (*ids, hostile)] == ["PUBLISHED"] * len(ids) + ["DEAD"]
    assert {words[1] for words in read_notes(notes)} == {str(concurrency == 1)}

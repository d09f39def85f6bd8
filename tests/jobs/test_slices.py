"""Job types that share a slot for slices of time, as inside of Spark's tasks: here in the test's own process."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import penstock
from penstock.engine.jobs.workers import JobWorkers
from penstock.errors import HandlerUnreachable
from tests.support.children import dies_while_loading
from tests.support.children import jobs as functions
from tests.support.job_engine import job_type
from tests.support.notes import read_notes
from tests.support.running import Gate
from tests.support.waiting import wait_until


class Slice:
    """A slice that ends when the test says so, or when there is nothing to do."""

    def __init__(self, workers: JobWorkers) -> None:
        self.workers = workers
        self.unwanted = self.over = self.patient = False
        self._thread = threading.Thread(target=workers.work)

    def __call__(self) -> bool:
        return self.over or self.unwanted or (not self.patient and self.workers.idle is not None)

    def begin(self, *, patient: bool = True) -> None:
        self.patient = patient
        self.workers.until = self
        self.workers.again()
        self._thread.start()

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def wait(self) -> None:
        self._thread.join(60)
        assert self.ended, "the slice does not end"


@contextmanager
def sharing(log: penstock.Log, **types: object) -> Iterator[JobWorkers]:
    jobs = [job_type(function, name, lease_seconds=5.0, heartbeat_seconds=0.2) for name, function in types.items()]
    workers = JobWorkers(log, jobs, "host/0/1", None)
    try:
        yield workers
    finally:
        workers.close()


def done(log: penstock.Log, kind: str) -> int:
    return len(log.jobs(type=kind, state="PUBLISHED", limit=1_000))


def processes(workers: JobWorkers) -> dict[str, int]:
    """The processes of the types that have one."""
    found = {name: one.worker._process for name, one in workers._types.items() if one.worker is not None}
    return {name: one.pid for name, one in found.items() if one is not None}


@pytest.mark.shows("S21")
def test_a_type_gets_a_process_when_it_has_jobs_and_keeps_it_between_slices(log: penstock.Log, notes: Path) -> None:
    log.submit_many("a", [{"payload": {"n": n}} for n in range(50)])
    with sharing(log, a=functions.plain, b=functions.plain) as workers:
        first = Slice(workers)
        first.begin(patient=False)
        first.wait()
        assert done(log, "a") == 50 and workers.counts()["jobs:default:a"]["published"] == 50
        assert workers.idle is not None and workers.idle.horizon >= 50
        begun = processes(workers)
        assert begun.keys() == {"jobs:default:a"}
        ids = log.submit_many("a", [{"payload": {"n": n}} for n in range(5)]).ids
        log.submit("b", {"n": 1})
        assert {log.job(one).status for one in ids} == {"PENDING"}, "nothing is claimed between slices"
        second = Slice(workers)
        second.begin(patient=False)
        second.wait()
        assert (done(log, "a"), done(log, "b")) == (55, 1)
        assert processes(workers)["jobs:default:a"] == begun["jobs:default:a"]


@pytest.mark.shows("J14", "S21")
def test_other_types_continue_while_a_long_job_outlasts_its_slice(
    log: penstock.Log, notes: Path, tmp_path: Path
) -> None:
    """And its own type claims no more, so that the slice ends when the job does."""
    gate = Gate(tmp_path / "gate")
    payload = {"gate": str(tmp_path / "gate")}
    long = [log.submit("long", payload).id for _ in range(2)]
    with sharing(log, long=functions.gated, quick=functions.plain) as workers:
        one = Slice(workers)
        one.begin()
        wait_until(lambda: read_notes(notes) == [["0", "began"]], "the long job to begin")
        one.over = True
        log.submit_many("quick", [{"payload": {"n": n}} for n in range(20)])
        wait_until(lambda: done(log, "quick") == 20, "the quick ones, after the end of the slice")
        log.submit("quick", {"n": 20})
        wait_until(lambda: done(log, "quick") == 21, "another one, as long as the long job runs")
        assert not one.ended
        gate.open()
        one.wait()
        assert [(log.job(job).status, log.job(job).attempts) for job in long] == [("PUBLISHED", 1), ("PENDING", 0)]
    gate.close()


@pytest.mark.shows("J09")
def test_nothing_is_claimed_after_an_order_to_be_quiet(log: penstock.Log, notes: Path, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    log.submit("long", {"gate": str(tmp_path / "gate")})
    with sharing(log, long=functions.gated, quick=functions.plain) as workers:
        one = Slice(workers)
        one.begin()
        wait_until(lambda: len(read_notes(notes)) == 1, "the long job to begin")
        one.unwanted = True
        wait_until(lambda: not workers._active, "it to hear")
        waiting = log.submit("quick", {}).id
        gate.open()
        one.wait()
        assert (log.job(waiting).status, done(log, "long")) == ("PENDING", 1)
    gate.close()


@pytest.mark.shows("J09")
def test_a_slice_of_a_quiet_run_lets_nobody_claim_even_for_a_moment(
    log: penstock.Log, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.submit("quick", {})
    with sharing(log, quick=functions.plain) as workers:
        first = Slice(workers)
        first.begin(patient=False)
        first.wait()
        waiting = log.submit("quick", {}).id
        may_claim: list[set[str]] = []
        monkeypatch.setattr(workers, "_serve", lambda until: may_claim.append({*workers._active}))
        second = Slice(workers)
        second.unwanted = True
        second.begin()
        second.wait()
        assert may_claim == [set()] and log.job(waiting).attempts == 0


@pytest.mark.shows("J09", "K17")
def test_a_stop_lets_running_jobs_end_and_the_next_slice_starts_anew(
    log: penstock.Log, notes: Path, tmp_path: Path
) -> None:
    gate = Gate(tmp_path / "gate")
    ids = [log.submit("long", {"gate": str(tmp_path / "gate")}).id for _ in range(2)]
    with sharing(log, long=functions.gated) as workers:
        one = Slice(workers)
        one.begin()
        wait_until(lambda: len(read_notes(notes)) == 1, "one to begin")
        workers.stop()
        assert not one.ended
        gate.open()
        one.wait()
        assert [log.job(job).status for job in ids] == ["PUBLISHED", "PENDING"] and not processes(workers)
        again = Slice(workers)
        again.begin(patient=False)
        again.wait()
        assert log.job(ids[1]).status == "PUBLISHED"
    gate.close()


@pytest.mark.shows("K42")
def test_a_function_that_cannot_be_loaded_ends_the_slice_with_its_error(
    log: penstock.Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kills").write_bytes(b"xxx")
    monkeypatch.setenv("PENSTOCK_KILLS", str(tmp_path / "kills"))
    monkeypatch.setenv("PENSTOCK_ENGINE", str(os.getpid()))
    job = log.submit("bad", {}).id
    with sharing(log, bad=dies_while_loading.handle) as workers:
        one = Slice(workers)
        workers.until = one
        with pytest.raises(HandlerUnreachable):
            workers.work()
    assert (log.job(job).status, log.job(job).attempts) == ("PENDING", 0)

"""`@app.job` on the local engine: every job once, reported soon after its end, and nobody suffers from a neighbour."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import penstock
from tests.support.children import jobs as functions
from tests.support.children import slow_to_load
from tests.support.done_table import create_done_table, done_offsets
from tests.support.job_engine import job_engine, job_type, run_jobs_until_drained
from tests.support.notes import read_notes
from tests.support.running import Gate
from tests.support.waiting import wait_until


def statuses(log: penstock.Log) -> Counter[str]:
    return Counter(str(job.status) for job in log.jobs(limit=100_000))


@pytest.mark.shows("J02")
def test_every_job_is_done_once_by_priority(log: penstock.Log, notes: Path) -> None:
    log.submit_many("a", [{"payload": {"n": n}} for n in range(300)])
    urgent = log.submit("a", {"n": 300}, priority=9).id
    engine = run_jobs_until_drained(log, job_type(functions.plain))
    done = [int(n) for n, _ in read_notes(notes)]
    assert sorted(done) == list(range(301)) and done[0] == 300
    assert statuses(log) == {"PUBLISHED": 301}
    assert {job.attempts for job in log.jobs()} == {1} and log.job(urgent).status == "PUBLISHED"
    assert engine.snapshot()["jobs:default:a"]["published"] == 301


@pytest.mark.shows("J07", "J06", "S01")
def test_every_fault_fails_its_own_job_only(log: penstock.Log, notes: Path) -> None:
    faults = ["raise", "permanent", "system_exit", "exit", "kill", "segfault", "hang", "memory"]
    payloads = [{"n": n, "do": faults[n // 10] if n % 10 == 5 else None} for n in range(10 * len(faults))]
    ids = log.submit_many("a", [{"payload": one} for one in payloads]).ids
    run_jobs_until_drained(
        log,
        job_type(functions.plain, timeout_seconds=5, memory_mb=300, retry=penstock.Retry(max_attempts=1)),
    )
    shown = {job.id: job for job in log.jobs()}
    for payload, one in zip(payloads, ids, strict=True):
        wanted = "PUBLISHED" if payload["do"] is None else "DEAD"
        assert (shown[one].status, payload["do"]) == (wanted, payload["do"]), shown[one]
    assert {shown[one].failures for p, one in zip(payloads, ids, strict=True) if p["do"] is None} == {0}
    codes = {str(p["do"]): shown[one].error_code for p, one in zip(payloads, ids, strict=True) if p["do"]}
    assert codes["hang"] == "timed_out" and codes["memory"] == "out_of_memory" and codes["kill"] == "process_died"


@pytest.mark.shows("J07", "K16")
@pytest.mark.parametrize("concurrency", [1, 8])
def test_deaths_among_neighbours_lose_and_blame_nobody_else(log: penstock.Log, notes: Path, concurrency: int) -> None:
    payloads = [{"n": n, "do": "kill" if n % 50 == 25 else None} for n in range(200)]
    log.submit_many("a", [{"payload": one} for one in payloads])
    run_jobs_until_drained(log, job_type(functions.once, concurrency=concurrency))
    assert statuses(log) == {"PUBLISHED": 200}
    assert {int(n) for n, _ in read_notes(notes)} == set(range(200))


@pytest.mark.shows("K43")
def test_a_job_keeps_its_lease_while_its_fresh_process_loads(
    log: penstock.Log, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The function takes longer to load than a lease lasts, and a job that killed its process gets a new one."""
    monkeypatch.setenv("PENSTOCK_LOADS", "1.5")
    job = log.submit("a", {"do": "kill"}).id
    run_jobs_until_drained(log, job_type(slow_to_load.do_job, lease_seconds=1.0, heartbeat_seconds=0.1))
    assert (log.job(job).status, log.job(job).attempts, log.job(job).failures) == ("PUBLISHED", 2, 1)


@pytest.mark.shows("J18", "K27")
def test_results_and_effects_commit_with_the_job(log: penstock.Log) -> None:
    create_done_table(log.store.url)
    ids = log.submit_many("a", [{"payload": {"n": n, "do": "raise" if n == 7 else None}} for n in range(20)]).ids
    run_jobs_until_drained(log, job_type(functions.answer))
    results = [log.job(one).result for one in ids]
    assert results == [None if n in (0, 7) else {"twice": 2 * n} for n in range(20)]
    expected = [n for n in range(20) if n != 7]
    assert sorted(done_offsets(log.store.url)) == expected
    assert sorted(event.json()["n"] for event in log.read("done")) == expected


@pytest.mark.shows("J08")
@pytest.mark.clause("004-29")
def test_a_model_is_checked_at_submit_and_again_before_the_function(log: penstock.Log, notes: Path) -> None:
    early = log.submit("mail", {"to": 7}).id  # nobody has declared the type yet
    good = log.submit("mail", {"to": "ada", "copies": 2}).id
    run_jobs_until_drained(log, job_type(functions.send, "mail", schema=functions.Email))
    shown = log.job(early)
    assert (shown.status, shown.attempts, shown.error_code) == ("DEAD", 1, "invalid_job")
    assert "to" in (shown.error or "") and log.job(good).result == 2
    assert read_notes(notes) == [["ada", "2"]]
    for wrong in ({"to": 7}, {}, {"to": "ada", "copies": "many"}, [1]):
        with pytest.raises(penstock.InvalidJob):
            log.submit("mail", wrong)
        with pytest.raises(penstock.InvalidJob):
            log.submit_many("mail", [{"payload": {"to": "bob"}}, {"payload": wrong}])
    assert len(log.jobs()) == 2 and not log.submit("mail", {"to": "bob"}).duplicate


@pytest.mark.shows("J08")
@pytest.mark.clause("004-30")
def test_invalid_jobs_may_be_completed_as_on_the_page(log: penstock.Log, notes: Path) -> None:
    early = log.submit("mail", {"to": 7}).id
    run_jobs_until_drained(log, job_type(functions.send, "mail", schema=functions.Email, on_invalid="complete"))
    assert log.job(early).status == "PUBLISHED" and read_notes(notes) == []


@pytest.mark.shows("J09")
@pytest.mark.parametrize("function", [functions.wait, functions.wait_async])
def test_concurrency_is_used_and_never_exceeded(log: penstock.Log, notes: Path, function: object) -> None:
    log.submit_many("a", [{"payload": {"n": n}} for n in range(200)])
    run_jobs_until_drained(log, job_type(function, concurrency=5))
    at_once = [int(words[1]) for words in read_notes(notes)]
    assert len(at_once) == 200 and max(at_once) == 5


@pytest.mark.shows("J14")
def test_a_finished_job_is_settled_though_its_neighbour_takes_long(
    log: penstock.Log, notes: Path, tmp_path: Path
) -> None:
    gate = Gate(tmp_path / "gate")
    log.submit_many("a", [{"payload": {"n": n}} for n in range(500)])  # to learn that they are quick
    with job_engine(log, job_type(functions.gated, concurrency=2)):
        wait_until(lambda: statuses(log)["PUBLISHED"] == 500, "the quick ones")
        batch = [{"payload": {"n": 1000 + n, "gate": str(tmp_path / "gate") if n == 3 else None}} for n in range(300)]
        ids = log.submit_many("a", batch).ids
        wait_until(lambda: statuses(log)["PUBLISHED"] == 799, "all but the long one")
        assert (log.job(ids[3]).status, log.job(ids[3]).attempts) == ("CLAIMED", 1)
        gate.open()
        wait_until(lambda: log.job(ids[3]).status == "PUBLISHED", "the long one")
    gate.close()
    assert [words[1] for words in read_notes(notes) if words[0] == "1003"] == ["began", "ended"]
    history = log.delivery(log.job(ids[3]).stream, "workers", ids[3]).history
    assert history[0].outcome == "claimed" and history[-1].outcome == "published"


@pytest.mark.shows("J09", "K17")
def test_a_stop_lets_running_jobs_end_and_gives_the_rest_back(log: penstock.Log, notes: Path, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    ids = log.submit_many("a", [{"payload": {"n": n, "gate": str(tmp_path / "gate")}} for n in range(6)]).ids
    policy = {"concurrency": 2, "lease_seconds": 2.0, "heartbeat_seconds": 0.2}
    with job_engine(log, job_type(functions.gated, **policy)) as engine:
        wait_until(lambda: len(read_notes(notes)) == 2, "two to begin")
        before = [log.job(one).heartbeat_at for one in ids[:2]]
        engine.stop()
        wait_until(
            lambda: all((log.job(one).heartbeat_at or before[0]) > before[0] for one in ids[:2]),  # type: ignore[operator]
            "heartbeats while it stops",
        )
        gate.open()
    gate.close()
    assert statuses(log) == {"PUBLISHED": 2, "PENDING": 4}
    assert [log.job(one).failures for one in ids] == [0] * 6


@pytest.mark.shows("J03", "X04")
def test_a_job_whose_lease_is_lost_is_told_and_changes_nothing(log: penstock.Log, notes: Path) -> None:
    job_id = log.submit("a", {}).id
    with job_engine(log, job_type(functions.patient, heartbeat_seconds=0.1)):
        wait_until(lambda: len(read_notes(notes)) == 1, "it to begin")
        stream = log.job(job_id).stream
        log.pause(stream, "workers")
        log.rewind(stream, "workers", to="beginning")  # ends the lease, as an expiry would
        wait_until(lambda: ["told"] in read_notes(notes), "the job to be told")
    assert (log.job(job_id).status, log.job(job_id).result) == ("PENDING", None)


@pytest.mark.shows("J17", "J18")
def test_a_running_job_is_cancelled_with_its_next_heartbeat(log: penstock.Log, notes: Path) -> None:
    failing, ending = log.submit("a", {"raise": 1}).id, log.submit("a", {}).id
    with job_engine(log, job_type(functions.patient, heartbeat_seconds=0.1, concurrency=2)):
        wait_until(lambda: len(read_notes(notes)) == 2, "both to begin")
        wait_until(lambda: log.job(failing).progress == 0.5, "their progress")
        assert log.job(failing).message == "half way"
        for one in (failing, ending):
            assert log.cancel_job(one).status == "CLAIMED"
        wait_until(lambda: statuses(log)["CLAIMED"] == 0, "them to end")
    shown = log.job(failing)
    assert (shown.status, shown.error_code, shown.attempts) == ("DEAD", "cancelled", 1)
    assert (log.job(ending).status, log.job(ending).result) == ("PUBLISHED", "ended in time")


@pytest.mark.shows("J07")
@pytest.mark.clause("004-28")
def test_a_failure_may_be_left_to_the_expiry_of_its_lease(log: penstock.Log, notes: Path) -> None:
    log.submit("a", {"do": "raise", "n": 1})
    ok = log.submit("a", {"n": 2}).id
    policy = {"on_error": "expire", "lease_seconds": 0.5, "heartbeat_seconds": 0.1, "max_attempts": 2}
    retry = penstock.Retry(max_attempts=2, base_seconds=0, jitter=0)
    policy.pop("max_attempts")
    run_jobs_until_drained(log, job_type(functions.plain, retry=retry, **policy))
    failing = next(job for job in log.jobs() if job.id != ok)
    assert (failing.status, failing.attempts, failing.error_code) == ("DEAD", 2, "lease_expired")
    assert log.job(ok).status == "PUBLISHED"


@pytest.mark.shows("J13")
def test_misconfigured_jobs_are_refused_at_their_declaration() -> None:
    app = penstock.App("sqlite:///never.db")
    for wrong in (
        {"heartbeat_seconds": 30},
        {"heartbeat_seconds": 31, "lease_seconds": 31},
        {"lease_seconds": 0},
        {"concurrency": 0},
        {"on_error": "ignore"},
        {"on_invalid": "skip"},
        {"schema": dict},
        {"queue": "a:b"},
        {"max_attempts": 0},
    ):
        with pytest.raises(penstock.InvalidInput):
            app.job("a", **wrong)(functions.plain)
    with pytest.raises(penstock.InvalidHandler):
        app.job("a")(lambda: None)
    app.job("a")(functions.plain)
    with pytest.raises(penstock.PolicyConflict):
        app.job("a")(functions.plain)


@pytest.mark.shows("J13")
def test_other_types_are_left_alone_and_state_is_refused(log: penstock.Log, notes: Path) -> None:
    other = log.submit("unknown", {}).id
    mine = log.submit("a", {}, max_attempts=1).id
    run_jobs_until_drained(log, job_type(functions.stateful))
    assert (log.job(other).status, log.job(other).attempts) == ("PENDING", 0)
    assert log.job(mine).status == "DEAD" and "no keyed state" in (log.job(mine).error or "")


@pytest.mark.shows("J02", "K20")
def test_delayed_and_later_jobs_are_picked_up_when_due(log: penstock.Log, notes: Path) -> None:
    with job_engine(log, job_type(functions.plain)):
        log.submit("a", {"n": 0})
        wait_until(lambda: len(read_notes(notes)) == 1, "the process to be there")
        log.submit("a", {"n": 1}, available_at=datetime.now(UTC) + timedelta(seconds=1))
        log.submit("a", {"n": 2})
        wait_until(lambda: [n for n, _ in read_notes(notes)] == ["0", "2", "1"], "all, in this order")


@pytest.mark.shows("K47")
def test_an_unavailable_target_costs_no_failure(
    log: penstock.Log, notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    down = tmp_path / "down"
    monkeypatch.setenv("PENSTOCK_DOWN", str(down))
    down.touch()
    log.submit_many("a", [{"payload": n} for n in range(1, 40)])
    with job_engine(log, job_type(functions.unavailable)):
        wait_until(lambda: len(read_notes(notes)) >= 2, "a probe")
        down.unlink()
        wait_until(lambda: statuses(log)["PUBLISHED"] == 39, "all of them")
    assert {job.failures for job in log.jobs()} == {0}


@pytest.mark.shows("J21", "K26")
def test_a_type_that_breaks_its_process_is_paused_alone(log: penstock.Log, notes: Path) -> None:
    log.submit_many("bad", [{"payload": {"do": "kill", "n": n}} for n in range(15)])
    log.submit_many("good", [{"payload": {"n": n}} for n in range(15)])
    once = penstock.Retry(max_attempts=1)
    types = [job_type(functions.plain, "bad", retry=once), job_type(functions.plain, "good")]
    with job_engine(log, *types):
        wait_until(lambda: any(one.paused for one in log.groups("jobs:default:0:bad")), "the guard")
        wait_until(lambda: len(log.jobs(type="good", state="PUBLISHED")) == 15, "the other type")
    assert not any(one.paused for one in log.groups("jobs:default:0:good"))

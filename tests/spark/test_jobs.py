"""Jobs inside Spark tasks: types of a queue share slots, and whatever happens to a task, every job ends once."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.core.lease import Idle
from penstock.declare.portable import portable
from penstock.spark.handlers import engine as engines
from penstock.spark.handlers.groups import SlicedGroup, most_urgent, sliced_queues
from tests.support.children import handlers
from tests.support.children import jobs as functions
from tests.support.declarations import subscription
from tests.support.done_table import create_done_table, done_offsets
from tests.support.job_engine import job_type
from tests.support.log_steps import count_published
from tests.support.notes import read_notes
from tests.support.raw_sql import raw
from tests.support.running import Gate
from tests.support.spark_engine import engine_on_spark
from tests.support.waiting import wait_until

QUICK: dict[str, Any] = {"lease_seconds": 2.0, "heartbeat_seconds": 0.2}
FAULTS = {5: "raise", 15: "kill", 25: "hang", 35: "permanent"}


def done(log: penstock.Log, kind: str) -> int:
    return len(log.jobs(type=kind, state="PUBLISHED", limit=10_000))


def wait_for_heartbeats(log: penstock.Log, ids: Sequence[Any]) -> None:
    """Wait until everybody who holds one of these jobs has said so again."""
    before = {one: log.job(one).heartbeat_at for one in ids}
    held = [one for one in ids if before[one] is not None]
    wait_until(lambda: all(log.job(one).heartbeat_at != before[one] for one in held), "heartbeats")


def spark_works(spark: Any) -> bool:
    return bool(spark.sparkContext.statusTracker().getActiveJobsIds())


@pytest.mark.shows("S01", "J06", "J07", "J18")
def test_an_app_runs_its_jobs_on_spark(spark: Any, log: penstock.Log, notes: Path) -> None:
    """Results, effects, retries and dead letters are as in `penstock worker`; the run ends when no job is left."""
    create_done_table(log.store.url)
    app = penstock.App(log.store.url, name="shop")
    at_once = penstock.Retry(max_attempts=2, base_seconds=0)
    app.job("a", retry=at_once, timeout_seconds=1.0, concurrency=2, **QUICK)(functions.plain)
    app.job("answer", **QUICK)(functions.answer)
    app.job("mail", queue="bulk", schema=functions.Email)(functions.send)
    app.subscribe("orders", group="g")(handlers.plain)
    log.append("orders", {}, type="t")
    payloads = [{"n": n, "do": FAULTS.get(n)} for n in range(40)]
    ids = log.submit_many("a", [{"payload": one} for one in payloads]).ids
    answers = log.submit_many("answer", [{"payload": {"n": n}} for n in range(1, 31)]).ids
    mail = log.submit("mail", {"to": "ada", "copies": 2}, queue="bulk").id
    outcome = app.run("spark", spark=spark, until_drained=True)
    shown = [log.job(one) for one in ids]
    assert {n: str(job.error_code) for n, job in enumerate(shown) if job.status == "DEAD"} == {
        5: "ValueError",
        15: "process_died",
        25: "timed_out",
        35: "Permanent",
    }
    assert [job.failures for n, job in enumerate(shown) if n in FAULTS] == [2, 2, 2, 1]
    assert {(str(job.status), job.failures) for n, job in enumerate(shown) if n not in FAULTS} == {("PUBLISHED", 0)}
    assert [log.job(one).result for one in answers] == [{"twice": 2 * n} for n in range(1, 31)]
    assert sorted(done_offsets(log.store.url)) == list(range(1, 31)) and log.job(mail).result == 2
    counts = {name: (one["published"], one["dead"]) for name, one in outcome.groups.items()}
    assert counts == {
        "orders/g": (1, 0),
        "jobs:default:a": (36, 4),
        "jobs:default:answer": (30, 0),
        "jobs:bulk:mail": (1, 0),
    }
    assert outcome.groups["jobs:default:a"]["deaths"] >= 4
    (run,) = log.runs(all=True)
    assert (run.engine, run.outcome) == ("spark", "stopped") and "jobs:bulk:mail" in run.groups


@pytest.mark.shows("J17", "J09", "K17", "S18")
def test_a_running_job_is_cancelled_and_a_stop_lets_the_others_end(
    spark: Any, postgres_log: penstock.Log, notes: Path, tmp_path: Path
) -> None:
    log, gate = postgres_log, Gate(tmp_path / "gate")
    cancelled = log.submit("patient", {"raise": 1}).id
    jobs = [job_type(functions.patient, "patient", **QUICK), job_type(functions.gated, "gated", **QUICK)]
    with engine_on_spark(spark, log, jobs=jobs) as engine:
        wait_until(lambda: ["began"] in read_notes(notes), "it to begin")
        log.cancel_job(cancelled)
        wait_until(lambda: log.job(cancelled).status == "DEAD", "it to end")
        assert log.job(cancelled).error_code == "cancelled"
        ids = log.submit_many("gated", [{"payload": {"n": n, "gate": str(tmp_path / "gate")}} for n in range(5)]).ids
        wait_until(lambda: ["0", "began"] in read_notes(notes), "one to begin")
        engine.stop()
        wait_until(lambda: log.runs()[0].wanted == "stop", "the order")
        for _ in range(2):  # the first heartbeat may have been on its way
            wait_for_heartbeats(log, ids)
        gate.open()
    gate.close()
    begun = {int(n) for n, what in (line for line in read_notes(notes) if len(line) == 2) if what == "began"}
    assert 1 <= len(begun) < 5
    assert [log.job(one).status for one in ids] == ["PUBLISHED" if n in begun else "PENDING" for n in range(5)]
    assert engine.snapshot()["jobs:default:gated"]["published"] == len(begun)


@pytest.mark.shows("S03", "K16", "J03")
def test_the_jobs_of_a_killed_task_come_back_and_others_are_unharmed(
    spark: Any, postgres_log: penstock.Log, notes: Path, tmp_path: Path
) -> None:
    """The Python worker of a task dies, and its job's process with it."""
    log, gate = postgres_log, Gate(tmp_path / "gate")
    create_done_table(log.store.url)
    stuck = log.submit("gated", {"gate": str(tmp_path / "gate")}).id
    ids = log.submit_many("answer", [{"payload": {"n": n}} for n in range(1, 201)]).ids
    jobs = [job_type(functions.gated, "gated", **QUICK), job_type(functions.answer, "answer", **QUICK)]
    with engine_on_spark(spark, log, jobs=jobs, until_drained=True) as engine:
        wait_until(lambda: len(read_notes(notes)) == 1, "it to begin")
        os.kill(int(str(log.job(stuck).worker).split("/")[2]), signal.SIGKILL)
        wait_until(lambda: len(read_notes(notes)) == 2, "it to begin again")
        assert log.job(stuck).attempts == 2
        gate.open()
        assert engine.wait(100), engine.snapshot()
    gate.close()
    assert [log.job(one).result for one in ids] == [{"twice": 2 * n} for n in range(1, 201)]
    assert (log.job(stuck).status, log.job(stuck).attempts, log.job(stuck).failures) == ("PUBLISHED", 2, 1)
    assert sorted(done_offsets(log.store.url)) == list(range(1, 201))
    assert engine.snapshot()["jobs:default:answer"]["published"] == 200, "lost slices are counted, too"


@pytest.mark.shows("S21")
def test_jobs_leave_a_slot_to_others() -> None:
    """They may take hours. A first slice everybody gets, and who is alone may have all slots."""
    (queue,) = sliced_queues([job_type(functions.plain)])
    one = subscription(handlers.plain)
    group = SlicedGroup(subscription=one, portable=portable(one), asleep=Idle(None))
    assert most_urgent([queue, group], True, 1, False) is queue
    queue.begin(1)
    assert most_urgent([queue, group], True, 2, False) is queue
    assert most_urgent([queue, group], True, 1, False) is None
    assert most_urgent([queue], True, 1, True) is None, "pipelines count, too"
    assert most_urgent([queue], True, 1, False) is queue
    group.asleep = None
    assert most_urgent([queue, group], True, 1, False) is group


@pytest.mark.shows("S21", "J14")
def test_long_jobs_outlast_their_slices_and_hold_up_nobody(
    spark: Any, postgres_log: penstock.Log, notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other types work beside a long job in its slot."""
    log, gate = postgres_log, Gate(tmp_path / "gate")
    monkeypatch.setattr(engines, "_SHORT", 0.5)
    monkeypatch.setattr(engines, "_LONG", 0.5)
    ids = [log.submit("long", {"n": n, "gate": str(tmp_path / "gate")}).id for n in range(3)]
    jobs = [job_type(functions.gated, "long", **QUICK), job_type(functions.once, "quick", **QUICK)]
    with engine_on_spark(spark, log, subscription(handlers.plain), jobs=jobs, until_drained=True) as engine:
        wait_until(lambda: ["0", "began"] in read_notes(notes), "a long job to begin")
        for count in (1, 2, 3):
            log.submit("quick", {"n": count})
            log.append("orders", {}, type="t")
            wait_until(lambda count=count: done(log, "quick") == count, "a quick job")  # type: ignore[misc]
            wait_until(lambda count=count: count_published(log) == count, "a handler")  # type: ignore[misc]
        assert {(str(log.job(one).status), log.job(one).attempts) for one in ids} == {("CLAIMED", 1), ("PENDING", 0)}
        gate.open()
        assert engine.wait(100), engine.snapshot()
    gate.close()
    assert [(str(log.job(one).status), log.job(one).attempts) for one in ids] == [("PUBLISHED", 1)] * 3


@pytest.mark.shows("S18", "S21", "J12")
def test_a_queue_without_jobs_has_no_slot_and_obeys_orders(
    spark: Any, postgres_log: penstock.Log, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody tells the driver of the order, so only slices can have read it. A due schedule wakes the queue."""
    log = postgres_log
    monkeypatch.setattr(engines, "_PATIENCE_LONG", 0.5)
    app = penstock.App(log.store.url, name="shop")
    app.job("a")(functions.once)
    app.schedule("0 0 1 1 *")(functions.nightly)
    with engine_on_spark(spark, log, jobs=app.jobs, schedules=app.schedules) as engine:
        (queue,) = engine._groups
        log.submit("a", {"n": 1})
        wait_until(lambda: done(log, "a") == 1)
        wait_until(lambda: queue.asleep is not None and not spark_works(spark), "the queue to fall asleep")
        number = queue.last
        other = log.append("others", {}, type="t").offset
        wait_until(lambda: queue.asleep is not None and queue.asleep.horizon >= other, "a look at the other stream")
        assert queue.last == number and not spark_works(spark), "an append to another stream started a slice"
        with raw(log.store.url) as sql:
            sql("update penstock.schedules set next_at = now() - interval '1 minute'")
        wait_until(lambda: ["nightly", "1"] in read_notes(notes), "the run of the schedule")
        assert queue.last > number
        wait_until(lambda: queue.asleep is not None and not spark_works(spark), "the queue to fall asleep again")
        number = queue.last
        (run,) = log.runs()
        log.quiet_run(run.id, by="ada")
        waiting = log.submit("a", {"n": 2}).id
        wait_until(lambda: queue.last > number and not queue.running and queue.asleep is None, "a slice to obey")
        assert (log.job(waiting).status, log.job(waiting).attempts) == ("PENDING", 0)
        log.resume_run(run.id, by="ada")
        wait_until(lambda: done(log, "a") == 2, "it to go on")
    assert Counter(line[0] for line in read_notes(notes)) == {"1": 1, "2": 1, "nightly": 1}

"""An osqueue file moves in: its jobs are submitted with their ids, and tried before as often as they were."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.errors import InvalidSource
from penstock.imports.osqueue import Osqueue
from tests.support.import_sources import import_all

pytestmark = pytest.mark.shows("R13")
ID = "0198c0de-0000-4000-8000-00000000000a"


def job(**fields: Any) -> dict[str, Any]:
    usual = {
        "id": str(uuid.uuid4()),
        "status": "unclaimed",
        "type": "email:send",
        "payload": {"to": "a"},
        "attempts": 0,
    }
    return {**usual, "createdAt": 1_700_000_000_000, **fields}


@pytest.fixture
def queue(tmp_path: Path) -> Path:
    jobs = [
        job(id=ID, payload={"n": 1}, maxAttempts=5),
        job(id="mine-2", payload={"n": 2}, status="in_progress", workerId="w", heartbeat=1, attempts=2),
        job(payload=None, type="report"),
        job(payload={"n": 4}, type="not a name"),
    ]
    path = tmp_path / "queue.json"
    path.write_text(json.dumps({"broker": "b", "brokerHeartbeat": 1, "jobs": jobs, "completedTotal": 17}))
    return path


def read(path: Path) -> Osqueue:
    return Osqueue(str(path), queue="default")


def test_jobs_are_submitted_with_their_ids_and_attempts(log: penstock.Log, queue: Path) -> None:
    report = import_all(log, read(queue))
    assert report.complete and report.tally.copied == 3 and report.tally.reasons == {"unfit": 1}
    first = log.job(ID)
    assert json.loads(first.payload) == {"n": 1}
    second = log.claim_job("w-1", types=["email:send"])
    third = log.claim_job("w-1", types=["email:send"])
    assert second is not None and third is not None
    assert [json.loads(one.payload)["n"] for one in (second, third)] == [1, 2], "in the order of the file"
    assert second.max_attempts == 5
    delivery = log.delivery("jobs:default:0:email:send", "workers", third.id)
    assert delivery.total_attempts == 3 and delivery.metadata["penstock-id"] == "mine-2"
    assert ("imported", 2) in [(one.outcome, one.attempt) for one in delivery.history]
    assert json.loads(log.claim_job("w-1", types=["report"]).payload) is None  # type: ignore[union-attr]
    (rejected,) = log.read("osqueue.rejected")
    assert (
        "not a name" in rejected.json()["reason"]
        and rejected.json()["position"] == json.loads(queue.read_text())["jobs"][3]["id"]
    )


def test_odd_jobs_are_taken_or_rejected_and_lose_no_digit(log: penstock.Log, tmp_path: Path) -> None:
    path = tmp_path / "queue.json"
    jobs = [
        job(payload={"big": 123456789012345678901234567890, "e": "é"}),
        job(id={"an": "object"}, attempts=10**12, createdAt=10**30),
        job(attempts=-3, maxAttempts=0),
        job(attempts="many", maxAttempts="3"),
    ]
    path.write_text(json.dumps({"jobs": jobs}))
    report = import_all(log, read(path))
    assert report.complete and report.tally.copied == 2 and report.tally.rejected == 2
    first, second = log.read("jobs:default:0:email:send")
    assert first.payload.decode() == '{"big":123456789012345678901234567890,"e":"é"}'
    assert log.delivery("jobs:default:0:email:send", "workers", second.event_id).total_attempts == 1_000_000_000


def test_halves_of_characters_and_numbers_of_any_size_stop_nothing(log: penstock.Log, tmp_path: Path) -> None:
    path = tmp_path / "queue.json"
    odd, huge = "\ud800\0", 10**400
    jobs = [job(id=odd), job(workerId=odd), job(createdAt=odd), job(createdAt=huge), job(workerId=huge), job(type=odd)]
    path.write_text(json.dumps({"jobs": jobs, "completedTotal": huge}))
    report = import_all(log, read(path))
    assert report.complete and report.tally.copied == 5 and report.tally.rejected == 1
    assert log.read("jobs:default:0:email:send")[0].metadata["penstock-id"] == "\\ud800\\0"


def test_a_job_that_a_file_has_twice_is_counted_as_known(log: penstock.Log, tmp_path: Path) -> None:
    path = tmp_path / "queue.json"
    path.write_text(json.dumps({"jobs": [job(id=ID), job(id=ID)]}))
    report = import_all(log, read(path))
    assert (report.tally.copied, report.tally.known) == (2, 1)


def test_the_same_file_again_submits_only_what_is_new(log: penstock.Log, queue: Path) -> None:
    import_all(log, read(queue))
    claimed = log.claim_job("w-1", types=["email:send"])
    assert claimed is not None
    content = json.loads(queue.read_text())
    content["jobs"].insert(0, job(payload={"n": 5}))
    queue.write_text(json.dumps(content))
    report = import_all(log, read(queue))
    assert report.tally.copied == 4 and report.tally.known == 4, "three jobs and what was rejected"
    assert log.job(claimed.id).status == "CLAIMED"
    assert len(log.read("jobs:default:0:email:send")) == 3


def test_a_job_that_was_submitted_before_stays_as_it_is(log: penstock.Log, tmp_path: Path) -> None:
    log.submit("email:send", {"to": "a"}, event_id=ID)
    claimed = log.claim_job("w-1", types=["email:send"])
    path = tmp_path / "queue.json"
    path.write_text(json.dumps({"jobs": [job(id=ID, attempts=2)]}))
    assert import_all(log, read(path)).tally.known == 1
    assert claimed is not None and log.job(ID).status == "CLAIMED" and log.job(ID).attempts == 1
    log.complete_job(claimed.id, "w-1")


def test_what_was_completed_is_noted_in_the_audit(log: penstock.Log, queue: Path) -> None:
    report = import_all(log, read(queue))
    assert report.notes == {"completedTotal": 17}
    with log.store.transaction(write=False) as tx:
        record = tx.one("import.find", system="osqueue", source=report.source)
    assert json.loads(record.counts)["completedTotal"] == 17


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "has no list `jobs`"),
        ('{"jobs": [1]}', "has no list `jobs`"),
        ('{"jobs": [{"status": ["x"], "type": {}, "payload": {}}]}', "states that nobody has named"),
        ('{"jobs": [], "completedTotal": NaN, "x": ' + "[" * 100_000, "is not JSON"),
        ('{"jobs": [{"status": "lost", "type": "t", "payload": {}}]}', r"states that nobody has named: 'lost' \(1\)"),
    ],
)
def test_a_file_that_is_none_is_refused_before_anything_is_written(
    log: penstock.Log, tmp_path: Path, content: str, words: str
) -> None:
    path = tmp_path / "queue.json"
    path.write_text(content)
    with pytest.raises(InvalidSource, match=words):
        import_all(log, read(path))
    with pytest.raises(InvalidSource, match="No such file"):
        read(tmp_path / "other.json")
    assert log.streams() == []

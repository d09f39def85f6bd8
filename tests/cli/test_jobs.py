"""`penstock submit`, `jobs`, `cancel`, `worker` and `schedule`."""

from __future__ import annotations

import json
import signal
import uuid
from pathlib import Path

import pytest

import penstock as library
from tests.cli.conftest import Command
from tests.support.running import Gate, penstock

SHOP = """
import os, sys
from pydantic import BaseModel
from penstock import App

app = App({url!r}, name="shop")
here = os.path.dirname(os.path.abspath(__file__))

class Email(BaseModel):
    to: str

@app.job("email:send", schema=Email, max_attempts=1)
def send(email: Email):
    if email.to == "nobody":
        raise ValueError("no such address")
    if email.to == "gate":
        print("at the gate", file=sys.stderr, flush=True)
        open(os.path.join(here, "gate")).close()
    return {{"sent": email.to}}

@app.schedule("0 3 * * *", tz="Europe/Berlin")
def nightly():
    return "good night"
"""


@pytest.fixture
def cli(command: Command, log_url: str) -> Command:
    """Run a command against the log."""
    return lambda *arguments: command(*arguments, "--url", log_url)


@pytest.fixture
def shop(tmp_path: Path, log_url: str) -> Path:
    path = tmp_path / "shop.py"
    path.write_text(SHOP.format(url=log_url))
    return path


@pytest.mark.shows("J01", "J08", "J17")
def test_jobs_are_submitted_listed_shown_and_cancelled(cli: Command) -> None:
    done = cli("submit", "email:send", "--payload", '{"to": "ada"}', "--priority", "3", "--unique", "k", "--json").json
    again = cli("submit", "email:send", "--payload", '{"to": "bob"}', "--unique", "k", "--json").json
    assert again == {"id": done["id"], "type": "email:send", "duplicate": True}
    assert "was there already" in cli("submit", "email:send", "--payload", "1", "--unique", "k").out
    (listed,) = cli("jobs", "--json").json["jobs"]
    assert (listed["id"], listed["priority"], listed["status"], listed["payload"]) == (
        done["id"],
        3,
        "PENDING",
        {"to": "ada"},
    )
    assert cli("jobs", "--state", "DEAD").out.strip() == "No job matches."
    shown = cli("jobs", done["id"])
    assert "PENDING" in shown.out and '{"to":"ada"}' in shown.out
    assert cli("cancel", done["id"], "--json").json["status"] == "DEAD"
    assert cli("jobs", done["id"], "--json").json["reason"] == "cancelled"
    for wrong, code, error in (
        (("submit", "email:send", "--payload", "{}", "--priority", "10"), 2, "invalid_input"),
        (("submit", "email:send"), 2, "missing_field"),
        (("submit", "a b", "--payload", "{}"), 2, "invalid_name"),
        (("jobs", str(uuid.uuid4())), 1, "unknown_job"),
        (("cancel", "nonsense"), 2, "invalid_input"),
        (("schedule", "run", "nope"), 1, "unknown_schedule"),
    ):
        answer = cli(*wrong, "--json")
        assert (answer.code, answer.error) == (code, error), wrong


@pytest.mark.shows("J02", "J06", "J08", "J12")
def test_a_worker_does_the_jobs_of_an_app(cli: Command, shop: Path, tmp_path: Path) -> None:
    good = cli("submit", "email:send", "--payload", '{"to": "ada"}', "--json").json["id"]
    bad = cli("submit", "email:send", "--payload", '{"to": "nobody"}', "--json").json["id"]
    with penstock(tmp_path, "worker", shop, "--until-drained", "--json") as worker:
        assert worker.wait() == 0, worker.err
    counts = json.loads(worker.out)["groups"]["jobs:default:email:send"]
    assert (counts["published"], counts["dead"]) == (1, 1)
    assert cli("jobs", good, "--json").json["result"] == {"sent": "ada"}
    assert cli("jobs", bad, "--json").json["error"] == "no such address"
    refused = cli("submit", "email:send", "--payload", '{"to": 7}', "--json")
    assert (refused.code, refused.error) == (2, "invalid_job")
    (nightly,) = cli("schedule", "list", "--json").json["schedules"]
    assert (nightly["name"], nightly["tz"], len(nightly["next_runs"])) == ("shop.nightly", "Europe/Berlin", 5)
    run = cli("schedule", "run", "shop.nightly", "--json").json["job"]
    with penstock(tmp_path, "worker", shop, "--types", "shop.nightly", "--until-drained") as worker:
        assert worker.wait() == 0, worker.err
    assert cli("jobs", run, "--json").json["result"] == "good night"
    assert cli("schedule", "suspend", "shop.nightly", "--json").json["suspended"] is True
    assert cli("schedule", "resume", "shop.nightly", "--json").json["suspended"] is False
    assert cli("schedule", "delete", "shop.nightly", "--json").json["deleted"] is True
    assert cli("schedule", "list").out.strip() == "There are no schedules."


@pytest.mark.shows("J09", "K17")
def test_a_worker_stops_when_its_jobs_have_ended(cli: Command, shop: Path, tmp_path: Path, log_url: str) -> None:
    gate = Gate(tmp_path / "gate")
    ids = [cli("submit", "email:send", "--payload", '{"to": "gate"}', "--json").json["id"] for _ in range(2)]
    with penstock(tmp_path, "worker", shop) as worker:
        worker.wait_for_words("at the gate")
        worker.process.send_signal(signal.SIGTERM)
        worker.wait_for_words("stopping")
        gate.open()
        assert worker.wait() == 0
    gate.close()
    with library.open(log_url) as log:
        assert [log.job(one).status for one in ids] == ["PUBLISHED", "PENDING"]
    assert "published=1" in worker.out


@pytest.mark.shows("J13")
def test_a_worker_refuses_what_it_cannot_do(cli: Command, shop: Path, tmp_path: Path) -> None:
    for arguments, code, words in (
        (("worker", shop, "--types", "unknown"), 1, "unknown_job"),
        (("worker", shop, "--concurrency", "0"), 2, "usage"),
        (("worker", shop, "--processes", "65"), 2, "usage"),
        (("run", shop, "--processes", "2"), 2, "invalid_input"),
    ):
        with penstock(tmp_path, *arguments, "--json") as refused:
            assert refused.wait() == code and words in refused.out, (arguments, refused.out, refused.err)


@pytest.mark.shows("J06", "J08")
def test_how_long_jobs_stay_is_set_and_shown(cli: Command, log_url: str) -> None:
    cli("submit", "email:send", "--payload", "{}")
    changed = cli("job-type", "set", "email:send", "--keep-finished", "7d", "--keep-dead", "forever", "--json").json
    assert changed == {"type": "email:send", "queue": "default", "keep_finished": 604_800, "keep_dead": None}
    assert "dead ones 90m" in cli("job-type", "set", "email:send", "--keep-dead", "90m").out
    with library.open(log_url) as log:
        job = log.claim_job("w")
        assert job is not None
        log.complete_job(job.id, "w")
    counts = {"type": "email:send", "queue": "default", "pending": 0, "claimed": 0}
    totals = {"completed_total": 1, "exhausted_total": 0}
    assert cli("job-type", "list", "--json").json == {
        "job_types": [counts | totals | {"keep_finished": 604_800, "keep_dead": 5400}]
    }
    assert "email:send" in cli("job-type", "list").out
    found = cli("stats", "--json").json
    assert found["job_types"] == [counts | totals]
    assert (found["groups"][0]["completed_total"], found["groups"][0]["exhausted_total"]) == (1, 0)
    assert "completed" in cli("stats").out
    for wrong in (["--keep-dead", "0"], ["--keep-finished", "soon"], ["--keep-finished", "-1"], []):
        assert cli("job-type", "set", "email:send", *wrong).code == 2

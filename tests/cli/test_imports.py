"""`penstock import`: dry runs, one document, tables of 60 columns, exit codes, and no password anywhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import penstock as library
from tests.cli.conftest import Command
from tests.support.import_sources import execute, fill_outbox

pytestmark = pytest.mark.shows("R13")
SECRET = "do-not-show-me"
INTO = ("--into", "orders", "--group", "relay")


@pytest.fixture
def source(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    fill_outbox(postgres_url, 60)
    monkeypatch.setenv("PENSTOCK_IMPORT_FROM", postgres_url.replace("postgres@", f"postgres:{SECRET}@"))
    return postgres_url


@pytest.mark.empty_place
def test_a_dry_run_counts_and_writes_nothing(penstock: Command, source: str, log_url: str) -> None:
    execute(source, "update openoutbox_events set event_type = 'no name' where attempts = 2")
    bad = execute(source, "select count(*) from openoutbox_events where attempts = 2")[0][0]
    said = penstock("import", "outbox", *INTO, "--dry-run")
    assert said.code == 0 and said.json["dry_run"] and said.json["rejected"] == {"invalid_name": bad}
    (group,) = said.json["groups"]
    counts = dict(execute(source, "select state, count(*) from openoutbox_events group by 1"))
    assert group["source"] == counts and group["now"] is None
    assert said.json["copied"] == 60 - bad
    if log_url.startswith("sqlite"):
        assert not Path(log_url.removeprefix("sqlite:///")).exists()


def test_one_document_says_what_was_taken(penstock: Command, source: str) -> None:
    said = penstock("import", "outbox", *INTO)
    assert said.code == 0 and said.json["complete"] and said.json["copied"] == 60
    group = said.json["groups"][0]
    assert group["now"]["PUBLISHED"] == group["source"]["PUBLISHED"] and group["now"]["DEAD"] == group["source"]["DEAD"]
    assert group["now"]["PENDING"] == group["source"]["PENDING"] + group["source"]["CLAIMED"]
    assert SECRET not in said.out + said.err
    again = penstock("import", "outbox", *INTO)
    assert again.code == 0 and again.json["done_before"] and again.json["copied"] == 60


def test_the_table_fits_a_narrow_terminal(
    command: Command, log_url: str, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    for more in (("--dry-run",), ()):
        said = command("import", "outbox", *INTO, "--url", log_url, *more)
        assert said.code == 0, said.err
        assert max(len(line) for line in (said.out + said.err).splitlines()) <= 60, said.out
        assert "PUBLISHED" in said.out and "relay on orders" in said.out
    assert "stop the relay" in said.err.replace("\n", " "), "what must not run meanwhile"
    assert SECRET not in said.out + said.err


def test_mistakes_are_said_with_their_codes(penstock: Command, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert penstock("import", "outbox", *INTO, "--column", "payload").code == 2
    assert penstock("import", "outbox", *INTO, "--column", "payload=body").error == "invalid_source"
    assert penstock("import", "outbox", *INTO, "--state", "x=SENT").code == 2
    assert penstock("import", "outbox", "--into", "jobs:a:0:b", "--group", "g").error == "reserved_stream"
    assert penstock("import", "outbox", *INTO, "--from", "postgresql://127.0.0.1:1/x").error == "source_unavailable"
    assert penstock("group", "create", "orders", "relay").code == 0
    assert penstock("import", "outbox", *INTO).error == "import_conflict"
    monkeypatch.delenv("PENSTOCK_IMPORT_FROM")
    said = penstock("import", "outbox", *INTO)
    assert said.code == 2 and "--from URL" in said.out


def test_a_source_that_changes_meanwhile_ends_with_one(
    penstock: Command, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counting and reading see one moment of a database; a stream has none."""
    from penstock.imports.outbox import Outbox
    from penstock.imports.source import GroupCount

    counted = Outbox.count

    def more(self: Outbox) -> list[GroupCount]:
        (one,) = counted(self)
        return [one._replace(states={state: count + 1 for state, count in one.states.items()})]

    monkeypatch.setattr(Outbox, "count", more)
    said = penstock("import", "outbox", *INTO)
    assert said.code == 1 and not said.json["complete"]


def test_osqueue_files_are_submitted(penstock: Command, log_url: str, tmp_path: Path) -> None:
    path = tmp_path / "queue.json"
    jobs = [{"id": str(n), "status": "unclaimed", "type": "mail", "payload": {"n": n}, "attempts": 0} for n in range(3)]
    path.write_text(json.dumps({"jobs": jobs, "completedTotal": 4}))
    said = penstock("import", "osqueue", path, "--queue", "mails", "--priority", 3)
    assert said.code == 0 and said.json["copied"] == 3 and said.json["notes"] == {"completedTotal": 4}
    with library.open(log_url) as log:
        job = log.claim_job("w", types=["mail"], queue="mails")
        assert job is not None and (job.queue, job.priority) == ("mails", 3)
    assert penstock("import", "osqueue", tmp_path / "none").error == "invalid_source"

"""What `penstock doctor` finds (O06): each thing is provoked on the store where it can happen, and says what to do."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

import penstock as library
from penstock.core.finding import Finding, Level
from penstock.log import doctor, doctor_runs, repair
from penstock.log.runs import NewRun
from penstock.stores.base import schema_version
from penstock.stores.postgres import upkeep
from penstock.stores.sqlite import health as sqlite_health
from tests.cli.conftest import Command
from tests.cli.test_cli import fill
from tests.support.running import penstock as start

pytestmark = pytest.mark.shows("O06")
Examine = Callable[..., dict[str, list[dict[str, Any]]]]


@pytest.fixture
def examine(command: Command) -> Examine:
    """What the doctor says about a log, by check."""

    def ask(url: str, *options: str, code: int | None = None) -> dict[str, list[dict[str, Any]]]:
        answer = command("doctor", *options, "--url", url, "--json")
        assert code is None or answer.code == code, answer.out
        found: dict[str, list[dict[str, Any]]] = {}
        for one in answer.json["findings"]:
            found.setdefault(one["check"], []).append(one)
            assert one["todo"] or one["level"] == "ok", one
        return found

    return ask


# --- either store ----------------------------------------------------------------------------------------------------


def test_nothing_is_said_about_a_log_in_order(examine: Examine, log_url: str) -> None:
    fill(log_url)
    found = examine(log_url)
    for check in ("schema", "indexes", "clock", "runs", "bind", "tally", "leases", "readers", "lanes", "groups"):
        assert [one["level"] for one in found[check]] == ["ok"], found[check]


def test_a_clock_that_is_wrong(examine: Examine, log_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(log_url)
    for hours, words in ((2, "120m ahead of"), (-50, "2d behind")):
        monkeypatch.setattr(doctor, "local_now", lambda h=hours: datetime.now(UTC) + timedelta(hours=h))
        (one,) = examine(log_url)["clock"]
        assert one["level"] == "note" and words in one["what"]


def test_a_run_that_is_lost_is_named_and_closed(
    examine: Examine, log_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log_url)
    with library.open(log_url) as log:
        log.start_run(NewRun("mail-1/7", None, "local", "1", "mail-1", 7, ["orders/fraud"]))
    assert examine(log_url)["runs"][0]["level"] == "ok"
    monkeypatch.setattr(doctor_runs, "RUN_LOST_SECONDS", -60)
    (one,) = examine(log_url)["runs"]
    assert one["level"] == "note" and "(mail-1/7, local) for orders/fraud has sent no heartbeat" in one["what"]
    monkeypatch.setattr(repair, "RUN_LOST_SECONDS", -60)
    found = examine(log_url, "--repair")
    assert "1 lost runs were closed" in found["repair: runs"][0]["what"] and found["runs"][0]["level"] == "ok"
    with library.open(log_url) as log:
        assert [one.outcome for one in log.runs(all=True)] == ["lost"]


def test_a_service_that_anybody_can_overhear(examine: Examine, log_url: str) -> None:
    fill(log_url)
    with library.open(log_url) as log:
        for address in ("http://127.0.0.1:1", "http://[::1]:1", "http://0.0.0.0:1 behind TLS"):
            log.start_run(NewRun("h/1", address, "serve", "1", "h", 1, []))
        assert examine(log_url)["bind"][0]["level"] == "ok"
        log.start_run(NewRun("h/2", "http://0.0.0.0:8787", "serve", "1", "h", 2, []))
    (one,) = examine(log_url, code=1)["bind"]
    assert one["level"] == "problem" and "at http://0.0.0.0:8787" in one["what"] and "--behind-tls" in one["todo"]


def test_a_tally_that_is_behind(examine: Examine, log_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(log_url)
    monkeypatch.setattr(doctor, "_UNCOUNTED", -1)
    (one,) = examine(log_url)["tally"]
    assert one["level"] == "note" and "up to 0 of 6" in one["what"]


def test_a_paused_group_is_named_at_once(examine: Examine, log_url: str) -> None:
    fill(log_url)
    with library.open(log_url) as log:
        lease = log.claim("orders", "fraud", claimed_by="w", limit=1)
        assert lease is not None
        lease.settle()
        log.pause("orders", "fraud", reason="ten solo deaths")
    (one,) = examine(log_url)["groups"]
    assert one["level"] == "note" and "paused (ten solo deaths): 5 events wait" in one["what"]
    assert one["todo"] == "penstock group resume orders fraud"


def test_a_schema_that_is_behind(log_url: str) -> None:
    with library.open(log_url) as log, log.store.transaction(write=False) as tx:
        assert schema_version(1, tx).level is Level.OK
        one = schema_version(9_999, tx)
    assert one.level is Level.PROBLEM and "`penstock init`" in str(one.todo)


# --- indexes ---------------------------------------------------------------------------------------------------------


def test_a_missing_index_of_a_file_is_created_again(examine: Examine, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'log.db'}"
    fill(url)
    with sqlite3.connect(tmp_path / "log.db") as file:
        (name,) = file.execute("select name from sqlite_master where type = 'index' and sql is not null").fetchone()
        file.execute(f"drop index {name}")
    file.close()
    (one,) = examine(url, code=1)["indexes"]
    assert one["what"] == f"Missing: {name}." and "doctor --repair" in one["todo"]
    found = examine(url, "--repair")
    assert name in found["repair: indexes"][0]["what"] and found["indexes"][0]["level"] == "ok"


def test_missing_and_invalid_indexes_of_a_server_are_created_again(examine: Examine, postgres_log_url: str) -> None:
    fill(postgres_log_url)
    with psycopg.connect(postgres_log_url, autocommit=True) as connection:
        connection.execute("drop index penstock.deliveries_due")
        connection.execute(
            "update pg_index set indisvalid = false where indexrelid = 'penstock.deliveries_halted'::regclass"
        )
    (one,) = examine(postgres_log_url, code=1)["indexes"]
    assert one["what"] == "Missing: deliveries_due. Invalid: deliveries_halted."
    found = examine(postgres_log_url, "--repair")
    assert found["indexes"][0]["level"] == "ok"
    assert "deliveries_due, deliveries_halted" in found["repair: indexes"][0]["what"]


# --- PostgreSQL ------------------------------------------------------------------------------------------------------


def test_autovacuum_that_is_off(examine: Examine, postgres_log_url: str) -> None:
    assert examine(postgres_log_url)["vacuum"][0]["level"] == "ok"
    with psycopg.connect(postgres_log_url, autocommit=True) as connection:
        connection.execute("alter table penstock.deliveries set (autovacuum_enabled = false)")
    (one,) = examine(postgres_log_url)["vacuum"]
    assert one["level"] == "problem" and "for the table deliveries" in one["what"]
    with library.open(postgres_log_url) as log, log.store.transaction(write=False) as tx:
        found = [*upkeep.vacuum(tx, {"autovacuum": "off"}, "penstock", tx.now())]
    assert [(one.level, one.what.partition(":")[0]) for one in found] == [
        (Level.PROBLEM, "autovacuum is off"),
        (Level.PROBLEM, "autovacuum is off for the table deliveries."),
    ]


def test_a_wraparound_that_comes_near(examine: Examine, postgres_log_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "_FREEZE_LATE", -1)
    (one,) = examine(postgres_log_url)["vacuum"]
    assert one["level"] == "note" and "vacuum freeze" in one["todo"]
    monkeypatch.setattr(upkeep, "_NEAR_THE_END", -1)
    assert examine(postgres_log_url)["vacuum"][0]["level"] == "problem"


def test_a_transaction_that_keeps_vacuum_from_its_work(
    examine: Examine, postgres_log_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "_SNAPSHOT_SECONDS", -60)
    with psycopg.connect(postgres_log_url, application_name="report") as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("select 1")
        found = [one for one in examine(postgres_log_url)["vacuum"] if "report" in one["what"]]
    assert [one["level"] for one in found] == ["note"] and "pg_terminate_backend" in found[0]["todo"]


def test_a_database_that_lets_anybody_in(examine: Examine, postgres_log_url: str) -> None:
    with psycopg.connect(postgres_log_url) as connection:
        row = connection.execute("show hba_file").fetchone()
    assert row is not None
    rules = Path(row[0])
    before = rules.read_text()
    try:
        rules.write_text(f"{before}\nhost all all 10.0.0.0/8 trust\n")
        found = [one for one in examine(postgres_log_url)["bind"] if "pg_hba.conf" in one["what"]]
        with library.open(postgres_log_url) as log, log.store.transaction(write=False) as tx:
            outside = [*upkeep.exposure(tx, {"listen_addresses": "localhost, 10.0.0.1"})]
    finally:
        rules.write_text(before)
    assert [one["level"] for one in found] == ["note"] and "from 10.0.0.0 without a password" in found[0]["what"]
    assert [one.level for one in outside] == [Level.PROBLEM]


# --- SQLite ----------------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    name: str
    setting: object
    valid: int = 1
    version: int = 10_000


class Answers:
    """A transaction in which only the settings are asked for."""

    def __init__(self, **settings: object) -> None:
        self._settings = [Row(name, value) for name, value in settings.items()]

    def rows(self, block: str) -> list[Row]:
        return self._settings if block == "doctor.settings" else []

    def one(self, block: str) -> Row:
        return Row(block, None)


def findings(check: str, **settings: object) -> list[Finding]:
    tx: Any = Answers(**settings)
    return [one for one in sqlite_health.findings(tx) if one.check == check]


def test_settings_of_a_file_that_lose_or_wait() -> None:
    assert [one.level for one in findings("durability", synchronous="full", journal_mode="wal")] == [Level.OK]
    (one,) = findings("durability", synchronous="normal", journal_mode="wal")
    assert one.level is Level.PROBLEM and "power cut" in one.what
    (one,) = findings("durability", synchronous="full", journal_mode="delete")
    assert one.level is Level.PROBLEM and "not wal" in one.what


def test_an_old_sqlite(examine: Examine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path / 'log.db'}"
    fill(url)
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 40, 1))
    (one,) = examine(url)["sqlite"]
    assert one["level"] == "note" and "WAL-reset" in one["what"] and "3.51.3" in one["todo"]
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 51, 3))
    assert examine(url)["sqlite"][0]["level"] == "ok"


# --- a service, and who is asked -------------------------------------------------------------------------------------


def test_serve_on_the_network(examine: Examine, command: Command, tmp_path: Path) -> None:
    """Without a token it is refused; with one it warns, and the doctor names it until it has stopped."""
    url = f"sqlite:///{tmp_path / 'log.db'}"
    refused = command("serve", "--host", "0.0.0.0", "--port", 0, "--url", url, "--json")
    assert (refused.code, refused.error) == (1, "token_needed")
    open_to_all = command("serve", "--host", "0.0.0.0", "--port", 0, "--no-auth", "--url", url, "--json")
    assert (open_to_all.code, open_to_all.error) == (1, "token_needed")
    assert command("token", "create", "me", "--scope", "admin", "--url", url).code == 0
    with start(tmp_path, "serve", "--host", "0.0.0.0", "--port", 0, "--url", url) as running:
        running.wait_for_words("is plain HTTP on the network")
        running.wait_until(lambda: examine(url)["bind"][0]["level"] == "problem", "the doctor to name it")
        number = command("runs", "--url", url, "--json").json["runs"][0]["id"]
        assert command("stop", "--url", url, "--json").error == "usage", "a service is stopped by its number"
        running.process.send_signal(signal.SIGTERM)
        assert running.wait() == 0
    assert examine(url)["bind"][0]["level"] == "ok"
    (run,) = command("runs", "--all", "--url", url, "--json").json["runs"]
    assert (run["id"], run["engine"], run["state"], run["outcome"]) == (number, "serve", "ended", "stopped")


def test_repair_asks_whoever_is_there(command: Command, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'log.db'}"
    fill(url)
    refused = command("doctor", "--repair", "--url", url, "--json", stdin="n\n", terminal=True)
    assert (refused.code, refused.error) == (1, "aborted") and "every open lease is ended" in refused.err
    assert command("doctor", "--repair", "--yes", "--url", url, "--json", terminal=True).code == 0
    assert command("doctor", "--repair", "--url", url, "--json").code == 0

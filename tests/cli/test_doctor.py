"""The doctor: what is in order, what is not, and what it can mend."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

import penstock as library
from penstock.log import doctor
from penstock.log.reader_claims import ReaderClaims
from penstock.log.runs import NewRun
from penstock.stores.postgres import health
from tests.cli.conftest import Command
from tests.cli.test_cli import fill
from tests.support.postgres_server import PostgresServer

Levels = dict[str, list[str]]


@pytest.fixture
def levels(penstock: Command) -> Callable[..., Levels]:
    def examine(*options: str) -> Levels:
        found: Levels = {}
        answer = penstock("doctor", *options)
        for one in answer.json["findings"]:
            found.setdefault(one["check"], []).append(one["level"])
            assert one["todo"] or one["level"] == "ok"
        problems = [level for several in found.values() for level in several if level == "problem"]
        assert answer.json["healthy"] is not bool(problems)
        assert answer.code == (1 if problems else 0)
        return found

    return examine


def test_a_log_in_order(levels: Callable[..., Levels], log_url: str) -> None:
    fill(log_url)
    found = levels()
    assert found["leases"] == found["lanes"] == found["groups"] == ["ok"]


def test_expired_leases_are_found_and_ended(levels: Callable[..., Levels], log_url: str) -> None:
    fill(log_url)
    with library.open(log_url) as log:
        assert log.claim("orders", "fraud", claimed_by="gone", lease_seconds=0.001)
    assert levels()["leases"] == ["problem"]
    mended = levels("--repair")
    assert mended["repair: leases"] == mended["leases"] == ["ok"]


@pytest.mark.shows("S24")
def test_a_silent_reader_is_named_with_the_command_that_releases_it(
    penstock: Command, levels: Callable[..., Levels], log_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log_url)
    assert levels()["readers"] == ["ok"]
    with library.open(log_url) as log:
        gone = log.start_run(NewRun("w", None, "spark", "1", "host", 1, ["orders/fraud"]))
        ReaderClaims(log.store, "orders", "fraud").next("failed", after=0, limit=2, upto=None)
        ReaderClaims(log.store, "orders", "fraud", gone).next("ended", after=0, limit=1, upto=None)
        log.end_run(gone, "stopped")
    assert levels()["readers"] == ["ok"], "a claim of this moment is no sign of anything"
    monkeypatch.setattr(doctor, "_IDLE_SECONDS", -60)
    found = {one["level"]: one for one in penstock("doctor").json["findings"] if one["check"] == "readers"}
    assert "Reader failed of fraud on orders has held 2 events" in found["note"]["what"]
    assert "penstock release orders fraud --reader failed" in found["note"]["todo"]
    assert "and its run is over" in found["problem"]["what"]
    monkeypatch.setattr(doctor, "_SILENT_SECONDS", -60)
    assert levels()["readers"] == ["problem", "problem"]


def test_groups_that_nobody_works_for(
    levels: Callable[..., Levels], log_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log_url)
    monkeypatch.setattr(doctor, "_IDLE_SECONDS", -60)
    assert levels()["groups"] == ["problem"]
    with library.open(log_url) as log:
        log.pause("orders", "fraud", reason="deploy")
    assert levels()["groups"] == ["note"]


def test_blocked_lanes(levels: Callable[..., Levels], log_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = fill(log_url)
    with library.open(log_url) as log:
        log.create_group("orders", "ledger", ordering="key")
        while lease := log.claim("orders", "ledger", claimed_by="w"):
            failed: dict[Any, str] = {e.event_id: "boom" for e in lease.events if str(e.event_id) in ids[:2]}
            lease.settle(failed=failed)
    assert levels()["lanes"] == ["ok"]
    monkeypatch.setattr(doctor, "BLOCKED_PER_LANE", 1)
    assert levels()["lanes"] == ["problem"]


def test_postgresql_without_durability(postgres_url: str, command: Command) -> None:
    fill(postgres_url)
    found = command("doctor", "--url", postgres_url, "--json")
    said = " ".join(one["what"] for one in found.json["findings"] if one["level"] == "problem")
    assert found.code == 1
    assert "fsync is off" in said and "full_page_writes is off" in said  # the server of the tests is like that


def test_missing_indexes_and_a_sequence_left_behind(postgres_url: str, command: Command) -> None:
    fill(postgres_url)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("drop index penstock.deliveries_due")
        connection.execute("select setval('penstock.events_offset_seq', 2)")
    found = {one["check"]: one for one in command("doctor", "--url", postgres_url, "--json").json["findings"]}
    assert "deliveries_due" in found["indexes"]["what"]
    assert found["sequence"]["level"] == "problem"
    found = {
        one["check"]: one for one in command("doctor", "--repair", "--url", postgres_url, "--json").json["findings"]
    }
    assert found["repair: sequence"]["level"] == found["sequence"]["level"] == "ok"
    with library.open(postgres_url) as log:
        assert log.append("orders", {}, type="t").offset == 7


def test_an_open_appender_is_named(
    postgres: PostgresServer, postgres_url: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(postgres_url)
    monkeypatch.setattr(health, "_APPENDER_SECONDS", -1)
    with (
        library.open(postgres_url) as log,
        psycopg.connect(postgres_url, application_name="slow-import") as connection,
    ):
        log.append("orders", {}, type="t", connection=connection)
        findings = command("doctor", "--url", postgres_url, "--json").json["findings"]
        (held,) = [one for one in findings if one["check"] == "horizon"]
        assert held["level"] == "problem"
        assert "slow-import" in held["what"] and str(connection.info.backend_pid) in held["what"]
        connection.rollback()


@pytest.mark.shows("K40")
def test_a_forgotten_prepared_transaction_is_named(
    postgres_url: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(postgres_url)
    monkeypatch.setattr(health, "_APPENDER_SECONDS", -1)
    with library.open(postgres_url) as log, psycopg.connect(postgres_url, autocommit=True) as connection:
        with connection.cursor() as cursor:
            cursor.execute("begin")
            log.append("orders", {}, type="t", connection=connection)
            cursor.execute("prepare transaction 'shop''s 7'")
        findings = command("doctor", "--url", postgres_url, "--json").json["findings"]
        connection.execute("rollback prepared 'shop''s 7'")
        (held,) = [one for one in findings if one["check"] == "horizon"]
        assert held["level"] == "problem" and "shop's 7" in held["what"]
        assert "rollback prepared 'shop''s 7'" in held["todo"] and "commit prepared" in held["todo"]
        findings = command("doctor", "--url", postgres_url, "--json").json["findings"]
        assert [one["level"] for one in findings if one["check"] == "horizon"] == ["ok"]


@pytest.mark.shows("K40")
def test_a_lock_of_a_stranger_is_nobody_who_holds_the_horizon(
    postgres_url: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(postgres_url)
    monkeypatch.setattr(health, "_APPENDER_SECONDS", -1)
    with psycopg.connect(postgres_url) as connection:
        connection.execute(
            "select pg_advisory_lock_shared('penstock.events_offset_seq'::regclass::oid::bigint::bit(32)::int, 0)"
        )
        findings = command("doctor", "--url", postgres_url, "--json").json["findings"]
        assert [one["level"] for one in findings if one["check"] == "horizon"] == ["ok"]


@pytest.mark.shows("K49")
def test_repair_ends_every_open_lease(penstock: Command, log_url: str) -> None:
    """A range and a list of rows, neither of them expired: both come back at once, and nobody is blamed."""
    ids = fill(log_url)
    with library.open(log_url) as log:
        log.create_group("orders", "again", retry=library.Retry(base_seconds=0, jitter=0))
        first = log.claim("orders", "again", limit=2, claimed_by="w")
        assert first is not None
        first.settle(failed={event.event_id: "no" for event in first.events})
        held = [log.claim("orders", "again", limit=2, claimed_by="w") for _ in range(2)]
        assert all(held)
        failures = {one.event_id: one.failures for one in log.deliveries("orders", "again")}
        answer = penstock("doctor", "--repair")
        (said,) = [one["what"] for one in answer.json["findings"] if one["check"] == "repair: leases"]
        assert said.startswith("2 ")
        shown = log.deliveries("orders", "again")
        assert {one.state for one in shown} == {"PENDING"} and len(shown) == len(ids)
        assert {one.event_id: one.failures for one in shown} == failures
        for lease in held:
            assert lease is not None
            with pytest.raises(library.LeaseLost):
                lease.settle()
        again = set()
        while lease := log.claim("orders", "again", claimed_by="w"):
            again |= {str(event.event_id) for event in lease.events}
            lease.settle()
        assert again == set(ids)

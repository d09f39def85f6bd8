"""Copies of a log: a standby can be read up to what was replayed; other copies refuse work until repaired."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import penstock
from tests.support.log_steps import append_orders, claim_and_settle_all
from tests.support.postgres_server import PostgresServer
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[PostgresServer, PostgresServer]]:
    """A primary and a standby that follows it."""
    settings: dict[str, str | int] = {"wal_level": "logical", "max_wal_senders": 4, "max_replication_slots": 4}
    with PostgresServer(settings=settings) as primary:
        standby = PostgresServer(settings=settings)
        standby.start_as_standby_of(primary)
        try:
            yield primary, standby
        finally:
            standby.stop()


@pytest.fixture
def pair(servers: tuple[PostgresServer, PostgresServer]) -> Iterator[tuple[str, str]]:
    """The URLs of a fresh log on the primary and on the standby."""
    primary, standby = servers
    url = primary.create_database()
    penstock.open(url).close()
    replayed(primary, standby)
    yield url, standby.url(url.rpartition("/")[2])
    primary.drop_database(url.rpartition("/")[2])


def replayed(primary: PostgresServer, standby: PostgresServer) -> None:
    """Wait until the standby has replayed what the primary has written."""

    def value(server: PostgresServer, query: str, *params: Any) -> Any:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            row = connection.execute(query, params).fetchone()
            return None if row is None else row[0]

    target = value(primary, "select pg_current_wal_insert_lsn()")
    query = "select pg_last_wal_replay_lsn() >= %s::pg_lsn"
    wait_until(lambda: bool(value(standby, query, target)), f"the standby to replay {target}")


@pytest.mark.shows("K49")
def test_a_standby_is_read_up_to_the_replayed_horizon(
    servers: tuple[PostgresServer, PostgresServer], pair: tuple[str, str]
) -> None:
    """Sequences are logged 32 numbers ahead, and a standby has no locks that show unfinished appends."""
    primary, standby = servers
    with penstock.open(pair[0]) as log, psycopg.connect(pair[0]) as slow:
        log.create_group("orders", "g")
        first = append_orders(log, 3)
        assert log.reap() == 0  # maintenance notes the horizon
        held = log.append("orders", {}, type="t", connection=slow)
        later = append_orders(log, 2)
        replayed(primary, standby)
        with penstock.open(pair[1]) as copy:
            assert [event.event_id for event in copy.read("orders")] == first
            assert copy.stats().horizon == 3 and copy.stats().groups[0].pending == 3
            slow.commit()
            assert claim_and_settle_all(log) == [
                *first,
                held.event_id,
                *later,
            ]  # an idle claimer also notes it, once a second
            log._bookkeeping._note_after = 0.0
            assert claim_and_settle_all(log) == []
            replayed(primary, standby)
            assert [event.event_id for event in copy.read("orders")] == [*first, held.event_id, *later]
            assert {one.state for one in copy.deliveries("orders", "g")} == {"PUBLISHED"}


@pytest.mark.shows("K49")
def test_writes_on_a_standby_are_refused(pair: tuple[str, str]) -> None:
    with penstock.open(pair[1]) as copy:
        for attempt in (
            lambda: copy.append("orders", {}, type="t"),
            lambda: copy.append_many("orders", [{"payload": {}, "type": "t"}]),
            lambda: copy.claim("orders", "g", claimed_by="w"),
            lambda: copy.settle(1, 1, penstock.core.lease.Settlement()),  # type: ignore[attr-defined]
            lambda: copy.create_group("orders", "g"),
        ):
            with pytest.raises(penstock.OnStandby) as refused:
                attempt()
            assert refused.value.code == "on_standby"


@pytest.mark.shows("K49")
def test_a_promoted_standby_accepts_writes() -> None:
    settings: dict[str, str | int] = {"wal_level": "replica"}
    with PostgresServer(settings=settings) as primary:
        standby = PostgresServer(settings=settings)
        url = primary.create_database()
        with penstock.open(url) as log:
            log.create_group("orders", "g", retry=penstock.Retry(base_seconds=0, jitter=0))
            ids = append_orders(log, 5)
            lost = log.claim("orders", "g", limit=2, claimed_by="w")
            assert lost is not None
        standby.start_as_standby_of(primary)
        replayed(primary, standby)
        primary.kill()
        try:
            with psycopg.connect(standby.url(), autocommit=True) as connection:
                connection.execute("select pg_promote()")
            with penstock.open(standby.url(url.rpartition("/")[2])) as log:
                assert log.append("orders", {}, type="t").offset > 5
                done = log.repair(by="me")
                assert (done.moved, done.leases) == (False, 1)
                assert set(claim_and_settle_all(log)) >= set(ids)
        finally:
            standby.stop()


def dumped(server: PostgresServer, url: str, into: str) -> None:
    """Copy the log without its sequences into another database, as a careless restore does."""
    dump = subprocess.run(
        [server.program("pg_dump"), "--no-owner", url], check=True, capture_output=True, text=True
    ).stdout
    kept = "\n".join(line for line in dump.splitlines() if "pg_catalog.setval" not in line)
    subprocess.run(
        [server.program("psql"), "-q", "-v", "ON_ERROR_STOP=1", into],
        input=kept,
        check=True,
        capture_output=True,
        text=True,
    )


@pytest.mark.shows("K49")
def test_a_restored_log_refuses_work_until_it_is_repaired(postgres: PostgresServer, postgres_log_url: str) -> None:
    with penstock.open(postgres_log_url) as log:
        ids = append_orders(log, 10)
        log.create_group("orders", "g", retry=penstock.Retry(base_seconds=0, jitter=0))
        first = log.claim("orders", "g", limit=4, claimed_by="w")
        assert first is not None
        first.settle(failed={ids[0]: "no"}, dead={ids[1]: "never"})
        assert log.claim("orders", "g", limit=2, claimed_by="w") is not None
    with PostgresServer() as elsewhere:
        url = elsewhere.create_database()
        dumped(postgres, postgres_log_url, url)
        with penstock.open(url) as copy:
            for attempt in (
                lambda: copy.append("orders", {}, type="t"),
                lambda: copy.claim("orders", "g", claimed_by="w"),
                lambda: copy.read("orders"),
                copy.stats,
            ):
                with pytest.raises(penstock.CopiedLog):
                    attempt()
            done = copy.repair(by="me")
            assert done.moved and done.leases == 1
            with psycopg.connect(url) as connection:
                assert connection.execute("select name from penstock.sequences() where last < stored").fetchall() == []
                audit = connection.execute("select action, by, count from penstock.audit").fetchall()
                assert ("repair", "me", 1) in audit
                identities = connection.execute(
                    "select count(*) from pg_sequences where schemaname = 'penstock' and last_value is not null"
                ).fetchone()
                assert identities is not None and identities[0] >= len(done.sequences) >= 4
            assert copy.append("orders", {}, type="t").offset == 11
            assert sorted(claim_and_settle_all(copy)) == sorted([ids[0], *ids[4:], copy.read("orders")[-1].event_id])
            assert copy.create_group("orders", "other") is not None
        with penstock.open(url) as copy:
            assert copy.repair(by="me").sequences == ()


@pytest.mark.shows("K49")
def test_a_logical_subscriber_refuses_work_until_it_is_repaired(
    servers: tuple[PostgresServer, PostgresServer], pair: tuple[str, str]
) -> None:
    primary, _ = servers
    with (
        penstock.open(pair[0]) as log,
        PostgresServer() as subscriber,
        psycopg.connect(pair[0], autocommit=True) as publisher,
    ):
        ids = append_orders(log, 5)
        url = subscriber.create_database()
        penstock.open(url).close()
        publisher.execute("create publication everything for all tables")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                f"create subscription copy connection 'host=127.0.0.1 port={primary.port} user=postgres "
                f"dbname={pair[0].rpartition('/')[2]}' publication everything"
            )
            try:
                arrived = "select count(*) = 5 from penstock.events"
                wait_until(lambda: connection.execute(arrived).fetchone() == (True,), "the events to arrive")
                with penstock.open(url) as copy:
                    with pytest.raises(penstock.CopiedLog):
                        copy.claim("orders", "g", claimed_by="w")
                    with pytest.raises(penstock.CopiedLog):
                        copy.repair(by="me")
            finally:
                connection.execute("drop subscription copy")
        with penstock.open(url) as copy:
            assert "penstock.events_offset_seq" in copy.repair(by="me").sequences
            copy.create_group("orders", "g")
            assert claim_and_settle_all(copy) == ids and copy.append("orders", {}, type="t").offset == 6

"""Database roles: each can do its part and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

import penstock
from tests.support.log_steps import append_orders, claim_and_settle_all
from tests.support.postgres_server import PostgresServer
from tests.support.roles import role_of

Connection = psycopg.Connection[Any]


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


@pytest.mark.shows("K41", "X10")
def test_a_producer_can_append_and_see_the_results(postgres_log: penstock.Log, postgres_log_url: str) -> None:
    secret = postgres_log.append("payroll", {"salary": 1}, type="t")
    with role_of("producer", postgres_log_url) as (url, _), penstock.open(url) as log, connected(url) as sql:
        first = log.append("orders", {"n": 1}, type="t", ordering_key="k", event_id=penstock.event_id("one"))
        again = log.append("orders", {"n": 1}, type="t", ordering_key="k", event_id=penstock.event_id("one"))
        assert again.duplicate and again.offset == first.offset
        many = [{"payload": {"n": n}, "type": "t", "event_id": penstock.event_id(str(n))} for n in range(3)]
        assert log.append_many("orders", many).duplicates == 0
        assert log.append_many("orders", many).duplicates == 3
        assert len(log.append_many("orders", [{"payload": {}, "type": "t"}] * 2000).event_ids) == 2000
        with pytest.raises(penstock.DuplicateMismatch) as mismatch:
            log.append("orders", {"n": 2}, type="t", event_id=secret.event_id)
        assert "payroll" not in str(mismatch.value)
        with psycopg.connect(url) as business:
            assert log.append("orders", {}, type="t", connection=business).offset > first.offset
        called = sql.execute("select * from penstock.append('orders', 't', '{}'::jsonb, event_id => gen_random_uuid())")
        assert called.fetchone() is not None
        with pytest.raises(psycopg.Error, match="taken"):
            sql.execute("select * from penstock.append('orders', 't', '{}'::jsonb, event_id => %s)", (secret.event_id,))


@pytest.mark.shows("K41", "X10")
@pytest.mark.parametrize(
    "statement",
    [
        "select payload from penstock.events",
        'select "offset" from penstock.events',
        "select event_id from penstock.events",
        "select count(*) from penstock.events",
        "copy penstock.events to stdout",
        "select * from penstock.delivery",
        "select * from penstock.deliveries",
        "select * from penstock.leases",
        "select * from penstock.groups",
        "select * from penstock.staged",
        "select * from penstock.state",
        "select last_value from penstock.events_offset_seq",
        "select nextval('penstock.events_offset_seq')",
        "insert into penstock.events (stream, event_id, event_type, payload) "
        "values ('s', gen_random_uuid(), 't', '') returning payload",
        "insert into penstock.events (stream, event_id, event_type, payload, created_at) "
        "values ('s', gen_random_uuid(), 't', '', now())",
        "insert into penstock.leases default values",
        "select penstock.remove_events('orders', 9)",
        "select penstock.regrant()",
        "select penstock.grant_worker(current_user)",
        "select * from penstock.known_events('{}', (select array_agg(event_id) from penstock.events), '{}', '{}')",
    ],
)
def test_a_producer_can_do_nothing_else(postgres_log: penstock.Log, postgres_log_url: str, statement: str) -> None:
    postgres_log.append("payroll", {"salary": 1}, type="t")
    postgres_log.create_group("payroll", "g")
    with (
        role_of("producer", postgres_log_url) as (url, _),
        connected(url) as sql,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        sql.execute(statement)


@pytest.mark.shows("K41")
def test_a_forged_bucket_of_a_producer_is_refused(postgres_log: penstock.Log, postgres_log_url: str) -> None:
    with role_of("producer", postgres_log_url) as (url, _), connected(url) as sql:
        into = "insert into penstock.events (stream, event_id, event_type, payload, ordering_key, bucket) "
        for key, bucket in (("'a'", 300), ("'a'", 0), ("null", 7), ("'a'", "null")):
            with pytest.raises(psycopg.errors.CheckViolation, match="bucket_fits_key"):
                sql.execute(f"{into} values ('s', gen_random_uuid(), 't', '', {key}, {bucket})")
        sql.execute(f"{into} values ('s', gen_random_uuid(), 't', '', 'a', 202)")


@pytest.mark.shows("X10")
def test_a_worker_can_work_and_a_reader_can_only_read(postgres_log: penstock.Log, postgres_log_url: str) -> None:
    with role_of("worker", postgres_log_url) as (url, _), penstock.open(url) as log:
        ids = append_orders(log, 6, ordering_key="k")
        log.create_group("orders", "g", ordering="key", retry=penstock.Retry(base_seconds=0, jitter=0))
        lease = log.claim("orders", "g", claimed_by="w", limit=1)
        assert lease is not None
        lease.settle(emit=[{"stream": "out", "payload": {}, "type": "t"}])
        lease = log.claim("orders", "g", claimed_by="w", limit=4)
        assert lease is not None
        lease.settle(failed={ids[1]: "no"})
        assert sorted(claim_and_settle_all(log)) == sorted(ids[1:])
        assert log.replay("orders", "g", event_ids=[ids[0]]).count == 1
        assert log.kill("orders", "g", event_ids=[ids[0]], reason="why").count == 1
        assert log.redrive("orders", "g", event_ids=[ids[0]]).count == 1
        log.pause("orders", "g", reason="x")
        log.resume("orders", "g")
        lost = log.claim("orders", "g", claimed_by="gone", lease_seconds=0.001)
        assert lost is not None and log.reap() == 1
        log.rewind("orders", "g", to="beginning")
        assert claim_and_settle_all(log) == ids
    with role_of("reader", postgres_log_url) as (url, _), penstock.open(url) as log:
        assert len(log.read("orders")) == 6 and len(log.deliveries("orders", "g")) == 6
        assert log.stats().groups[0].published == 6
        with pytest.raises(penstock.PermissionDenied):
            log.append("orders", {}, type="t")
        with pytest.raises(penstock.PermissionDenied):
            log.claim("orders", "g", claimed_by="w")


@pytest.mark.shows("X10")
def test_an_upgrade_grants_new_tables_to_existing_roles(postgres_log: penstock.Log, postgres_log_url: str) -> None:
    """An upgrade recognises a role by its rights; producers of an earlier version could read events."""
    with (
        role_of("worker", postgres_log_url) as (worker, owner),
        role_of("reader", postgres_log_url) as (reader, _),
        role_of("producer", postgres_log_url) as (producer, _),
    ):
        names = {url: url.partition("//")[2].partition("@")[0] for url in (worker, reader, producer)}
        owner.execute(f"revoke all on penstock.runs, penstock.circuits, penstock.group_locks from {names[worker]}")
        owner.execute(f"revoke all on penstock.runs from {names[reader]}")
        owner.execute(f"grant select on penstock.events to {names[producer]}")
        owner.execute("select penstock.regrant()")
        with penstock.open(worker) as log, penstock.open(producer) as business:
            business.append("orders", {}, type="t")
            log.create_group("orders", "g")
            assert len(claim_and_settle_all(log)) == 1
        with connected(reader) as sql:
            sql.execute("select * from penstock.runs")
        with connected(producer) as sql, pytest.raises(psycopg.errors.InsufficientPrivilege):
            sql.execute("select * from penstock.events")


@pytest.mark.shows("X10")
def test_every_table_is_granted_or_listed_as_not_granted(postgres_log: penstock.Log, postgres_log_url: str) -> None:
    """A table added by a migration must be writable by workers or be listed here."""
    not_written = {
        "tokens",  # of the HTTP service: whoever could create one could do everything that the service can
        "metric_removed",  # by the trigger that counts removed events
        *("events", "home", "job_unique", "pruned", "schema_version", "test_clock"),
        *("archives", "archive_files", "archive_waste", "holds"),  # prune, archive, restore and erase are the owner's
    }
    with connected(postgres_log_url) as sql:
        tables = {
            name
            for (name,) in sql.execute(
                "select relname from pg_class where relnamespace = 'penstock'::regnamespace and relkind = 'r'"
            )
        }
        rows = sql.execute("select things from penstock.rights() where kind = 'worker'").fetchall()
    granted = {part.strip().removeprefix("penstock.") for (things,) in rows for part in things.split(",")}
    assert tables - granted - not_written == set()


@pytest.mark.shows("X10")
def test_a_log_in_another_schema_grants_its_own_roles(postgres: PostgresServer) -> None:
    url = postgres.create_database()
    try:
        with penstock.open(f"{url}?schema=shop") as log, connected(url) as owner:
            append_orders(log, 1)
            name = f"elsewhere_{owner.info.dbname}"
            owner.execute(f"create role {name} login")
            owner.execute("select shop.grant_producer(%s)", (name,))
            with penstock.open(f"{url}?schema=shop".replace("postgres@", f"{name}@")) as business:
                assert business.append("orders", {}, type="t").offset == 2
            owner.execute(f"drop owned by {name}")
            owner.execute(f"drop role {name}")
    finally:
        postgres.drop_database(url.rpartition("/")[2])

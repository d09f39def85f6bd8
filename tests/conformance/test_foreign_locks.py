"""Only unfinished appends hold the horizon back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
import pytest

import penstock
from tests.support.log_steps import append_orders, claim_and_settle_all

Connection = psycopg.Connection[Any]
INSERT = (
    "insert into penstock.events (stream, event_id, event_type, payload) "
    "values ('orders', gen_random_uuid(), 't', '{}')"
)


@pytest.fixture
def owner(postgres_log_url: str) -> Iterator[Connection]:
    with psycopg.connect(postgres_log_url, autocommit=True) as connection:
        yield connection


@contextmanager
def role(owner: Connection, prefix: str, options: str = "login") -> Iterator[str]:
    """A role for this test; roles belong to the whole server."""
    name = f"{prefix}_{owner.info.dbname}"
    owner.execute(f"create role {name} {options}")
    try:
        yield name
    finally:
        owner.execute(f"drop owned by {name}")
        owner.execute(f"drop role {name}")


@pytest.mark.shows("K40")
def test_foreign_advisory_locks_do_not_hold_the_horizon(
    postgres_log: penstock.Log, postgres_log_url: str, owner: Connection
) -> None:
    """Class and bound of an announcement are public, so any session can take such a lock."""
    log = postgres_log
    log.create_group("orders", "g")
    ids = append_orders(log, 3)
    number = owner.execute("select 'penstock.events_offset_seq'::regclass::oid::bigint::bit(32)::int").fetchone()
    assert number is not None
    with role(owner, "stranger") as stranger, psycopg.connect(postgres_log_url, user=stranger) as other:
        for call in ("pg_advisory_xact_lock_shared", "pg_advisory_lock_shared"):
            other.execute(f"select {call}(%s, 0)", number)
        for statement in ("lock table penstock.events in row exclusive mode", INSERT):
            other.execute("savepoint s")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                other.execute(statement)
            other.execute("rollback to savepoint s")
        assert [event.event_id for event in log.read("orders")] == ids
        assert claim_and_settle_all(log) == ids
        assert log.stats().horizon == 3


@pytest.mark.shows("K40")
def test_foreign_exclusive_locks_do_not_block_appends(
    postgres_log: penstock.Log, postgres_log_url: str, owner: Connection
) -> None:
    log = postgres_log
    log.create_group("orders", "g")
    ids = append_orders(log, 3)
    with role(owner, "stranger") as stranger, psycopg.connect(postgres_log_url, user=stranger) as other:
        (number,) = owner.execute(  # type: ignore[misc]
            "select 'penstock.events_offset_seq'::regclass::oid::bigint::bit(32)::int"
        ).fetchone()
        for bound in (0, 1, 2, 3, 4, 5, 2**31 - 1):
            other.execute("select pg_advisory_lock(%s, %s)", (number, bound))
        with psycopg.connect(postgres_log_url) as slow:
            slow.execute("set local lock_timeout = '5s'")
            slow.execute(INSERT)
            (later,) = append_orders(log, 1)
            assert claim_and_settle_all(log) == [], "the append did not announce itself below the locked number"
            slow.commit()
        assert claim_and_settle_all(log)[:3] == ids and log.delivery("orders", "g", later).state == "PUBLISHED"


def by_set_role(connection: Connection, owner: Connection, producer: str) -> None:
    connection.execute(f"set role {producer}")
    connection.execute(INSERT)
    connection.execute("reset role")


def by_definer_function(connection: Connection, owner: Connection, producer: str) -> None:
    owner.execute(
        f"create function public.shop() returns void language sql security definer as $${INSERT}$$;"
        f"alter function public.shop() owner to {producer}"
    )
    connection.execute("select public.shop()")


def by_revoked_rights(connection: Connection, owner: Connection, producer: str) -> None:
    connection.execute(f"set role {producer}")
    connection.execute(INSERT)
    # REVOKE does not wait for the lock: only the catalog changes
    owner.execute(f"revoke all on all tables in schema penstock from {producer}")
    owner.execute(f"revoke usage on schema penstock from {producer}")


def by_prepared(connection: Connection, owner: Connection, producer: str) -> None:
    connection.execute(f"set role {producer}")
    connection.execute(INSERT)
    connection.execute(f"prepare transaction '{producer}'")


def after_a_savepoint(connection: Connection, owner: Connection, producer: str) -> None:
    connection.execute(f"set role {producer}")
    connection.execute("savepoint s")
    connection.execute(INSERT)
    connection.execute("rollback to savepoint s")
    connection.execute(INSERT)


@pytest.mark.shows("K40")
@pytest.mark.parametrize(
    "way",
    [by_set_role, by_definer_function, by_revoked_rights, by_prepared, after_a_savepoint],
    ids=lambda f: f.__name__,
)
def test_every_unfinished_appender_holds_the_horizon(
    postgres_log: penstock.Log,
    postgres_log_url: str,
    owner: Connection,
    way: Callable[[Connection, Connection, str], None],
) -> None:
    log = postgres_log
    log.create_group("orders", "g")
    with ExitStack() as stack:
        producer = stack.enter_context(role(owner, "producer", "nologin noinherit"))
        client = stack.enter_context(role(owner, "client", f"login noinherit in role {producer}"))
        owner.execute("select penstock.grant_producer(%s)", (producer,))
        owner.execute(f"grant create on schema public to {producer}")
        # On a separate connection: psycopg would begin another transaction after PREPARE TRANSACTION.
        connection = stack.enter_context(psycopg.connect(postgres_log_url, user=client, autocommit=True))
        connection.execute("begin")
        way(connection, owner, producer)
        (later,) = append_orders(log, 1)
        assert claim_and_settle_all(log) == [] and log.read("orders") == [], "read before the first append committed"
        if way is by_prepared:
            owner.execute(f"commit prepared '{producer}'")
        else:
            connection.execute("commit")
        first, second = claim_and_settle_all(log)
        assert second == later and [event.event_id for event in log.read("orders")] == [first, later]


@pytest.mark.shows("K40")
def test_a_prepared_appender_holds_the_horizon_after_a_server_crash() -> None:
    from tests.support.postgres_server import PostgresServer

    with PostgresServer() as server:
        url = server.create_database()
        with penstock.open(url) as log, psycopg.connect(url, autocommit=True) as connection:
            log.create_group("orders", "g")
            connection.execute("begin")
            connection.execute(INSERT)
            connection.execute("prepare transaction 'forgotten'")
        server.kill()
        server.start()
        with penstock.open(url) as log, psycopg.connect(url, autocommit=True) as connection:
            (later,) = append_orders(log, 1)
            assert claim_and_settle_all(log) == []
            connection.execute("commit prepared 'forgotten'")
            assert claim_and_settle_all(log)[1:] == [later]

"""The outbox on every kind of connection: in a transaction on the log's own database, or refused."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import rows

import penstock
from penstock.errors import OutboxNeedsTransaction, WrongDatabase
from penstock.testing import StatementCounter
from tests.support.pgbouncer import PgBouncer, find
from tests.support.postgres_server import PostgresServer
from tests.support.sqlalchemy_url import sqlalchemy_url

CHOSEN = penstock.event_id("order-7")


@dataclass
class Anything:
    """A row type for class_row."""

    offset: Any = None


ROWS: dict[str, Any] = {
    "dict": rows.dict_row,
    "class": rows.class_row(Anything),
    "kwargs": rows.kwargs_row(lambda **fields: fields),
    "scalar": rows.scalar_row,
    "namedtuple": rows.namedtuple_row,
}
CURSORS: dict[str, Any] = {
    "client": psycopg.ClientCursor,
    "raw": psycopg.RawCursor,
}
ASYNC_CURSORS: dict[str, Any] = {
    "client": psycopg.AsyncClientCursor,
    "raw": psycopg.AsyncRawCursor,
}


def append_all(log: penstock.Log, connection: Any) -> None:
    """Append a new event, one with a chosen id, a duplicate, and one that is refused; the transaction stays usable."""
    log.append("orders", {"n": 1}, type="t", connection=connection)
    first = log.append("orders", {"n": 2}, type="t", connection=connection, event_id=CHOSEN)
    again = log.append("orders", {"n": 2}, type="t", connection=connection, event_id=CHOSEN)
    assert (first.duplicate, again.duplicate, again.offset) == (False, True, first.offset)
    with pytest.raises(penstock.DuplicateMismatch):
        log.append("orders", {"n": 3}, type="t", connection=connection, event_id=CHOSEN)
    assert log.read("orders") == []


async def append_all_async(log: penstock.Log, connection: Any) -> None:
    await log.append_async("orders", {"n": 1}, type="t", connection=connection)
    first = await log.append_async("orders", {"n": 2}, type="t", connection=connection, event_id=CHOSEN)
    again = await log.append_async("orders", {"n": 2}, type="t", connection=connection, event_id=CHOSEN)
    assert (first.duplicate, again.duplicate, again.offset) == (False, True, first.offset)
    with pytest.raises(penstock.DuplicateMismatch):
        await log.append_async("orders", {"n": 3}, type="t", connection=connection, event_id=CHOSEN)
    assert log.read("orders") == []


def check_stored(log: penstock.Log) -> None:
    assert [event.json() for event in log.read("orders")] == [{"n": 1}, {"n": 2}]


@pytest.mark.shows("K50")
@pytest.mark.parametrize("kind", [*ROWS, *CURSORS, "server", "pipeline", "pipeline raw", "nested", "two-phase"])
def test_append_works_with_every_kind_of_psycopg_connection(
    postgres_log: penstock.Log, postgres_log_url: str, kind: str
) -> None:
    options: dict[str, Any] = {"row_factory": ROWS[kind]} if kind in ROWS else {}
    if kind in CURSORS:
        options["cursor_factory"] = CURSORS[kind]
    if kind == "pipeline raw":
        options["cursor_factory"] = psycopg.RawCursor
    with psycopg.connect(postgres_log_url, **options) as connection:
        if kind == "server":
            connection.server_cursor_factory = psycopg.RawServerCursor
        if kind.startswith("pipeline"):
            with connection.pipeline():
                connection.execute("create table shop (id integer)")
                append_all(postgres_log, connection)
                connection.execute("insert into shop values (1)")
        elif kind == "nested":
            with connection.transaction(), connection.transaction():
                append_all(postgres_log, connection)
        elif kind == "two-phase":
            connection.tpc_begin(connection.xid(1, "gtrid", "bqual"))
            append_all(postgres_log, connection)
            connection.tpc_commit()
        else:
            append_all(postgres_log, connection)
    check_stored(postgres_log)


@pytest.mark.shows("K50")
@pytest.mark.parametrize("kind", [*ROWS, *ASYNC_CURSORS, "pipeline", "nested"])
def test_append_works_with_every_kind_of_async_psycopg_connection(
    postgres_log: penstock.Log, postgres_log_url: str, kind: str
) -> None:
    options: dict[str, Any] = {"row_factory": ROWS[kind]} if kind in ROWS else {}
    if kind in ASYNC_CURSORS:
        options["cursor_factory"] = ASYNC_CURSORS[kind]

    async def work() -> None:
        async with await psycopg.AsyncConnection.connect(postgres_log_url, **options) as connection:
            if kind == "pipeline":
                async with connection.pipeline():
                    await append_all_async(postgres_log, connection)
            elif kind == "nested":
                async with connection.transaction(), connection.transaction():
                    await append_all_async(postgres_log, connection)
            else:
                await append_all_async(postgres_log, connection)

    asyncio.run(work())
    check_stored(postgres_log)


@pytest.mark.shows("K50")
def test_a_rolled_back_savepoint_removes_its_event(postgres_log: penstock.Log, postgres_log_url: str) -> None:
    with psycopg.connect(postgres_log_url) as connection, connection.pipeline(), connection.transaction():
        postgres_log.append("orders", {"n": 1}, type="t", connection=connection)
        with connection.transaction() as inner:
            postgres_log.append("orders", {"n": 2}, type="t", connection=connection, event_id=CHOSEN)
            raise psycopg.Rollback(inner)
        postgres_log.append("orders", {"n": 3}, type="t", connection=connection, event_id=CHOSEN)
    assert [event.json() for event in postgres_log.read("orders")] == [{"n": 1}, {"n": 3}]


@pytest.mark.shows("K50")
def test_a_prepared_transaction_that_is_rolled_back_leaves_no_event(
    postgres_log: penstock.Log, postgres_log_url: str
) -> None:
    with psycopg.connect(postgres_log_url) as connection:
        connection.tpc_begin(connection.xid(1, "gtrid", "bqual"))
        append_all(postgres_log, connection)
        connection.tpc_rollback()
    assert postgres_log.read("orders") == []


# --- autocommit -------------------------------------------------------------------------------------------------------


@contextmanager
def alchemy_connection(url: str, how: str) -> Iterator[Any]:
    """A SQLAlchemy connection in AUTOCOMMIT, set in one of several ways."""
    from sqlalchemy import create_engine
    from sqlalchemy.orm import Session

    by_engine = how.startswith("engine")
    engine = create_engine(sqlalchemy_url(url), **({"isolation_level": "AUTOCOMMIT"} if by_engine else {}))
    target = engine if by_engine else engine.execution_options(isolation_level="AUTOCOMMIT")
    if how == "connection":
        target = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
    opened = Session(target) if how.endswith("session") else target if how == "connection" else target.connect()
    try:
        yield opened
    finally:
        opened.close()
        if how == "connection":
            target.close()
        engine.dispose()


@pytest.mark.shows("K50", "K01")
@pytest.mark.parametrize("how", ["engine", "engine session", "options", "options session", "connection"])
@pytest.mark.parametrize("begun", [False, True])
def test_sqlalchemy_in_autocommit_is_refused(log: penstock.Log, log_url: str, how: str, begun: bool) -> None:
    from sqlalchemy import text

    with alchemy_connection(log_url, how) as connection:
        if begun:
            connection.execute(text("select 1"))
        with pytest.raises(OutboxNeedsTransaction):
            log.append("orders", {}, type="t", connection=connection)
        connection.rollback()
    assert log.read("orders") == []


@pytest.mark.shows("K50", "K01")
@pytest.mark.parametrize("how", ["engine", "engine session", "options"])
def test_async_sqlalchemy_in_autocommit_is_refused(log: penstock.Log, log_url: str, how: str) -> None:
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

    async def work() -> None:
        by_engine = how.startswith("engine")
        options = {"isolation_level": "AUTOCOMMIT"} if by_engine else {}
        engine = create_async_engine(sqlalchemy_url(log_url, driver="+aiosqlite"), **options)
        target = engine if by_engine else engine.execution_options(isolation_level="AUTOCOMMIT")
        connection: Any = AsyncSession(target) if how.endswith("session") else await target.connect()
        try:
            with pytest.raises(OutboxNeedsTransaction):
                await log.append_async("orders", {}, type="t", connection=connection)
        finally:
            await connection.close()
            await engine.dispose()

    asyncio.run(work())
    assert log.read("orders") == []


@pytest.mark.shows("K01")
def test_sqlalchemys_begin_event_on_sqlite_counts_as_a_transaction(tmp_path: Path) -> None:
    """What SQLAlchemy recommends for SQLite: the driver in autocommit, and BEGIN sent by an event listener."""
    from sqlalchemy import create_engine, event

    with penstock.open(f"sqlite:///{tmp_path}/log.db") as log:
        engine = create_engine(f"sqlite:///{tmp_path}/log.db")

        @event.listens_for(engine, "connect")
        def connected(connection: Any, record: Any) -> None:
            connection.isolation_level = None

        @event.listens_for(engine, "begin")
        def begun(connection: Any) -> None:
            connection.exec_driver_sql("BEGIN")

        with engine.connect() as connection:
            log.append("orders", {}, type="t", connection=connection)
            connection.rollback()
            log.append("orders", {"kept": True}, type="t", connection=connection)
            connection.commit()
        engine.dispose()
        assert [one.json() for one in log.read("orders")] == [{"kept": True}]


@pytest.mark.shows("K50")
def test_autocommit_in_a_pipeline_is_refused(postgres_log: penstock.Log, postgres_log_url: str) -> None:
    with psycopg.connect(postgres_log_url, autocommit=True) as connection, connection.pipeline():
        connection.execute("select 1")
        with pytest.raises(OutboxNeedsTransaction):
            postgres_log.append("orders", {}, type="t", connection=connection)
    assert postgres_log.read("orders") == []


# --- another database -------------------------------------------------------------------------------------------------


@pytest.fixture
def other_url(log_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A second log."""
    if log_url.startswith("sqlite"):
        url = f"sqlite:///{tmp_path}/other.db"
        penstock.open(url).close()
        yield url
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    url = server.create_database(template=request.getfixturevalue("template"))
    yield url
    server.drop_database(url.rpartition("/")[2])


def driver(url: str) -> Any:
    return sqlite3.connect(url.removeprefix("sqlite:///")) if url.startswith("sqlite") else psycopg.connect(url)


def alchemical(url: str) -> Any:
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool

    return create_engine(sqlalchemy_url(url), poolclass=NullPool).connect()


CONNECT: dict[str, Callable[[str], Any]] = {"driver": driver, "sqlalchemy": alchemical}


@pytest.mark.shows("K50")
@pytest.mark.parametrize("how", CONNECT)
def test_a_connection_to_another_log_is_refused(log: penstock.Log, log_url: str, other_url: str, how: str) -> None:
    for url, right in ((other_url, False), (log_url, True)):
        connection = CONNECT[how](url)
        try:
            for _ in range(2):
                if right:
                    log.append("orders", {}, type="t", connection=connection)
                else:
                    with pytest.raises(WrongDatabase):
                        log.append("orders", {}, type="t", connection=connection)
            connection.commit()
        finally:
            connection.close()
    assert len(log.read("orders")) == 2
    with penstock.open(other_url) as other:
        assert other.read("orders") == []


@pytest.mark.shows("K50")
def test_a_connection_to_another_log_with_the_same_schema_name_is_refused(
    postgres_log: penstock.Log, postgres_log_url: str
) -> None:
    """Two logs in one database: the event goes to the log that appends it."""
    with penstock.open(f"{postgres_log_url}?schema=second") as second, psycopg.connect(postgres_log_url) as connection:
        second.append("orders", {"log": 2}, type="t", connection=connection)
        postgres_log.append("orders", {"log": 1}, type="t", connection=connection)
        connection.commit()
        assert [event.json() for event in second.read("orders")] == [{"log": 2}]
    assert [event.json() for event in postgres_log.read("orders")] == [{"log": 1}]


@pytest.mark.shows("K50")
def test_a_connection_to_the_same_file_by_another_path_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with penstock.open(f"sqlite:///{tmp_path}/log.db") as log:
        connection = sqlite3.connect(f"{tmp_path}/link/log.db")
        log.append("orders", {}, type="t", connection=connection)
        connection.commit()
        connection.close()
        shutil.copy(tmp_path / "log.db", tmp_path / "copy.db")
        copied, memory = sqlite3.connect(tmp_path / "copy.db"), sqlite3.connect(":memory:")
        for other in (copied, memory):
            with pytest.raises(WrongDatabase):
                log.append("orders", {}, type="t", connection=other)
            other.close()
        assert len(log.read("orders")) == 1


@pytest.mark.shows("K50")
def test_the_database_of_a_connection_is_checked_once(postgres_log_url: str) -> None:
    """An append on a known connection needs no extra round trip."""
    seen: list[str] = []
    counter = StatementCounter()
    with penstock.open(postgres_log_url, hook=counter) as log, psycopg.connect(postgres_log_url) as connection:
        execute = psycopg.Cursor.execute

        def noted(self: Any, query: Any, *arguments: Any, **options: Any) -> Any:
            if self.connection is connection:
                seen.append(str(query))
            return execute(self, query, *arguments, **options)

        psycopg.Cursor.execute = noted  # type: ignore[method-assign]
        try:
            for n in range(3):
                log.append("orders", {"n": n}, type="t", connection=connection)
        finally:
            psycopg.Cursor.execute = execute  # type: ignore[method-assign]
    assert len(seen) == 4 and sum("pg_postmaster_start_time" in one for one in seen) == 1
    assert counter.blocks.count("outbox.identity") == 1


@pytest.mark.skipif(find() is None, reason="pgbouncer is not installed")
@pytest.mark.shows("K50")
def test_a_connection_through_pgbouncer_is_recognised(
    postgres: PostgresServer, postgres_log: penstock.Log, postgres_log_url: str
) -> None:
    with PgBouncer(postgres) as bouncer:
        url = bouncer.url(os.path.basename(postgres_log_url))
        with psycopg.connect(url, prepare_threshold=None) as connection:
            append_all(postgres_log, connection)
    check_stored(postgres_log)

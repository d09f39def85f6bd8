"""Connections of the caller's that the outbox can use: how a statement is run on each, and which are refused."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from penstock.errors import OutboxNeedsTransaction, UnknownConnection
from penstock.stores.base import Store
from penstock.stores.blocks import percent

if TYPE_CHECKING:
    import sqlite3


@dataclass(frozen=True, slots=True)
class Caller:
    """A connection that passed the checks. A statement without parameters (None) returns no rows; others one, or none.

    `recover` makes the connection take statements again after one that failed. `key` is the driver's own connection, if
    asking it which database it belongs to costs a round trip.
    """

    execute: Callable[[str, Mapping[str, Any] | None], Any]
    key: Any = None
    recover: Callable[[], Any] = lambda: None


@contextmanager
def sync(store: Store, connection: Any) -> Iterator[Caller]:
    """A sqlite3, psycopg, SQLAlchemy or Django connection, or a clear refusal."""
    kind = _module(connection)
    if _is_sqlite(connection):
        _require(store, "sqlite")
        _refuse_autocommit(connection)
        yield Caller(lambda sql, params: _first(_sqlite_cursor(connection).execute(sql, params or {})))
    elif kind == "psycopg" and hasattr(connection, "cursor") and not _is_async(connection):
        _require(store, "postgresql")
        with _synced(connection):
            _refuse_autocommit(connection)
            yield Caller(
                lambda sql, params: _psycopg(connection, sql, params), connection, lambda: _recover(connection)
            )
    elif kind == "sqlalchemy" and not _is_async(connection):
        yield _sqlalchemy(store, connection)
    elif kind == "django" or hasattr(connection, "in_atomic_block"):
        yield _django(store, connection)
    else:
        raise UnknownConnection(f"{_name(connection)} is not supported here.")


@asynccontextmanager
async def asynchronous(store: Store, connection: Any) -> AsyncIterator[Caller]:
    """A psycopg AsyncConnection, or an SQLAlchemy AsyncConnection or AsyncSession."""
    kind = _module(connection)
    if kind == "psycopg" and _is_async(connection):
        _require(store, "postgresql")
        async with _synced_async(connection):
            _refuse_autocommit(connection)
            yield Caller(
                lambda sql, params: _psycopg_async(connection, sql, params),
                connection,
                lambda: _recover_async(connection),
            )
    elif kind == "sqlalchemy" and _is_async(connection):
        from sqlalchemy.ext.asyncio import AsyncSession

        target = await connection.connection() if isinstance(connection, AsyncSession) else connection
        plain = await target.run_sync(lambda one: _sqlalchemy(store, one))

        async def execute(sql: str, params: Mapping[str, Any] | None) -> Any:
            return await target.run_sync(lambda _: plain.execute(sql, params))

        async def recover() -> None:
            return None

        yield Caller(execute, plain.key, recover)
    else:
        raise UnknownConnection(f"append_async needs an async connection, not {_name(connection)}.")


def _name(connection: Any) -> str:
    return f"{type(connection).__module__}.{type(connection).__qualname__}"


def _module(connection: Any) -> str:
    return _module_of(type(connection).__mro__)


@lru_cache(maxsize=256)
def _module_of(classes: tuple[type, ...]) -> str:
    """The driver: a subclass of its connection counts as its own."""
    for cls in classes:
        root = cls.__module__.partition(".")[0]
        if root in ("psycopg", "sqlalchemy", "django"):
            return root
    return ""


def _is_sqlite(connection: Any) -> bool:
    """Without loading the driver: who has a connection has loaded it."""
    driver = sys.modules.get("sqlite3")
    return driver is not None and isinstance(connection, driver.Connection)


def _is_async(connection: Any) -> bool:
    return _names_async(type(connection).__mro__)


@lru_cache(maxsize=256)
def _names_async(classes: tuple[type, ...]) -> bool:
    return any("async" in cls.__name__.lower() for cls in classes)


def _require(store: Store, kind: str) -> None:
    if store.kind != kind:
        raise UnknownConnection(f"This log lives in {store.kind}, but the connection belongs to {kind}.")


def _refuse_autocommit(connection: Any) -> None:
    """A driver's connection that commits every statement, unless somebody has begun a transaction on it."""
    if _is_sqlite(connection):
        by_itself = connection.isolation_level is None or getattr(connection, "autocommit", None) is True
        if by_itself and not connection.in_transaction:
            raise OutboxNeedsTransaction
        return
    import psycopg

    if connection.autocommit and connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
        raise OutboxNeedsTransaction


# --- sqlite3 ---------------------------------------------------------------------------------------------------------


def _sqlite_cursor(connection: sqlite3.Connection) -> sqlite3.Cursor:
    """Rows as tuples and text as text, whatever the caller has made of its own."""
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor


def _first(cursor: sqlite3.Cursor) -> Sequence[Any] | None:
    rows: list[Sequence[Any]] = cursor.fetchall()  # to its end: an open statement would hold the caller's commit up
    cursor.close()
    return rows[0] if rows else None


# --- psycopg ---------------------------------------------------------------------------------------------------------
# Cursors are made here, not by the connection, whose own kind may want other placeholders or live on the server.


def _in_pipeline(connection: Any) -> bool:
    import psycopg

    return bool(connection.info.pipeline_status != psycopg.pq.PipelineStatus.OFF)


@contextmanager
def _synced(connection: Any) -> Iterator[None]:
    """In pipeline mode a block of its own: what was sent before is answered first, and nothing is left unanswered."""
    if not _in_pipeline(connection):
        yield
        return
    with connection.pipeline():
        yield


@asynccontextmanager
async def _synced_async(connection: Any) -> AsyncIterator[None]:
    if not _in_pipeline(connection):
        yield
        return
    async with connection.pipeline():
        yield


def _recover(connection: Any) -> None:
    """A pipeline takes nothing more after an error, until it is synchronised."""
    with _synced(connection):
        pass


async def _recover_async(connection: Any) -> None:
    async with _synced_async(connection):
        pass


def _psycopg(connection: Any, sql: str, params: Mapping[str, Any] | None) -> Sequence[Any] | None:
    import psycopg
    from psycopg.rows import tuple_row

    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        cursor.execute(percent(sql), params, prepare=False)
        return None if params is None else cursor.fetchone()


async def _psycopg_async(connection: Any, sql: str, params: Mapping[str, Any] | None) -> Sequence[Any] | None:
    import psycopg
    from psycopg.rows import tuple_row

    async with psycopg.AsyncCursor(connection, row_factory=tuple_row) as cursor:
        await cursor.execute(percent(sql), params, prepare=False)
        return None if params is None else await cursor.fetchone()


# --- SQLAlchemy and Django -------------------------------------------------------------------------------------------


def _sqlalchemy(store: Store, target: Any) -> Caller:
    from sqlalchemy import text
    from sqlalchemy.orm import Session, scoped_session

    session = isinstance(target, Session | scoped_session)
    connection = target.connection() if session else target
    if not hasattr(connection, "get_execution_options"):
        raise UnknownConnection(f"{_name(target)} is not supported here: pass a Connection or a Session.")
    _require(store, {"sqlite": "sqlite", "postgresql": "postgresql"}.get(connection.dialect.name, "another database"))
    if not connection.in_transaction():
        connection.begin()  # as its first statement would; now its driver shows whether that means anything
    pooled = connection.connection
    drivers = (pooled.dbapi_connection, pooled.driver_connection)
    if str(connection.get_execution_options().get("isolation_level", "")).upper() == "AUTOCOMMIT" or any(
        getattr(one, "autocommit", False) is True for one in drivers
    ):
        raise OutboxNeedsTransaction
    driver = pooled.driver_connection
    if store.kind == "sqlite" and driver.isolation_level is None and not driver.in_transaction:
        raise OutboxNeedsTransaction

    def execute(sql: str, params: Mapping[str, Any] | None) -> Sequence[Any] | None:
        result = connection.execute(text(sql), dict(params or {}))
        row = result.fetchone() if result.returns_rows else None
        result.close()
        return None if row is None else tuple(row)

    return Caller(execute, driver if store.kind == "postgresql" else None)


def _django(store: Store, connection: Any) -> Caller:
    _require(store, {"sqlite": "sqlite", "postgresql": "postgresql"}.get(connection.vendor, str(connection.vendor)))
    connection.ensure_connection()
    if connection.get_autocommit() and not connection.in_atomic_block:
        raise OutboxNeedsTransaction

    def execute(sql: str, params: Mapping[str, Any] | None) -> Sequence[Any] | None:
        with connection.cursor() as cursor:
            cursor.execute(percent(sql), dict(params) if params is not None else None)
            return cursor.fetchone() if cursor.description else None

    return Caller(execute, connection.connection if store.kind == "postgresql" else None)

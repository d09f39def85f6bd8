"""The outbox: append in the caller's own transaction, on the caller's own connection.

What is to be done is a generator of statements (`steps`); a short driver per kind of connection runs them, sync or
async. The caller's transaction is never aborted by it, and never committed.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from penstock.core.event import Appended, NewEvent
from penstock.errors import OutboxNeedsTransaction, SchemaMissing, UnknownConnection
from penstock.stores.base import Store, Transaction
from penstock.stores.duplicates import check_same

Steps = Generator[tuple[str, Mapping[str, Any]], Sequence[Any] | None, Appended]

_SAVE, _KEEP, _UNDO = ("savepoint penstock", "release savepoint penstock", "rollback to savepoint penstock")


def steps(store: Store, event: NewEvent, chosen_id: bool) -> Steps:
    """The blocks of one append, with their parameters; each is answered with its first row."""
    event_id = event.event_id
    params = store.outbox_params(event)
    row = yield "outbox.insert" if store.clock is None else "outbox.insert_at", params
    if row is not None:
        return Appended(int(row[0]), event_id, False)
    known = yield "outbox.find", {"event_id": params["event_id"]}
    assert known is not None and chosen_id, "an id of our own making was taken"
    offset, stream, event_type, payload = known
    check_same(event_id, (stream, event_type, bytes(payload)), event)
    return Appended(int(offset), event_id, True)


Execute = Callable[[str, Mapping[str, Any] | None], Sequence[Any] | None]


def append(store: Store, connection: Any, event: NewEvent, chosen_id: bool) -> Appended:
    """Run the steps on a sqlite3, psycopg, SQLAlchemy or Django connection."""
    execute = _sync(store, connection)
    running = steps(store, event, chosen_id)
    # An id that may be taken can make the database complain in a strict isolation level; a savepoint takes the blow.
    guarded = chosen_id and store.kind == "postgresql"
    if guarded:
        execute(_SAVE, None)
    try:
        block, params = next(running)
        while True:
            block, params = running.send(execute(store.blocks[block], params))
    except StopIteration as end:
        if guarded:
            execute(_KEEP, None)
        return end.value  # type: ignore[no-any-return]
    except Exception as error:
        if guarded:
            execute(_UNDO, None)
        raise _named(error) from error


async def append_async(store: Store, connection: Any, event: NewEvent, chosen_id: bool) -> Appended:
    """Run the steps on a psycopg AsyncConnection, or an SQLAlchemy AsyncConnection or AsyncSession."""
    async with _async(store, connection) as execute:
        running = steps(store, event, chosen_id)
        guarded = chosen_id and store.kind == "postgresql"
        if guarded:
            await execute(_SAVE, None)
        try:
            block, params = next(running)
            while True:
                block, params = running.send(await execute(store.blocks[block], params))
        except StopIteration as end:
            if guarded:
                await execute(_KEEP, None)
            return end.value  # type: ignore[no-any-return]
        except Exception as error:
            if guarded:
                await execute(_UNDO, None)
            raise _named(error) from error


def _named(error: Exception) -> Exception:
    if type(error).__name__ in ("UndefinedTable", "InvalidSchemaName") or "no such table: penstock" in str(error):
        return SchemaMissing("The caller's database has no Penstock schema.")
    return error


def _module(connection: Any) -> str:
    return type(connection).__module__.partition(".")[0]


def _sync(store: Store, connection: Any) -> Execute:
    """How to run a statement on this connection, or a clear refusal."""
    import sqlite3

    if isinstance(connection, sqlite3.Connection):
        _require(store, "sqlite")
        by_itself = connection.isolation_level is None or getattr(connection, "autocommit", None) is True
        if by_itself and not connection.in_transaction:
            raise OutboxNeedsTransaction
        return lambda sql, params: connection.execute(sql, params or {}).fetchone()
    kind = _module(connection)
    if kind == "psycopg" and hasattr(connection, "cursor") and not _is_async(connection):
        _require(store, "postgresql")
        _check_psycopg(connection)
        return lambda sql, params: _psycopg(connection, sql, params)
    if kind == "sqlalchemy" and not _is_async(connection):
        return _sqlalchemy(store, connection)
    if kind == "django" or hasattr(connection, "in_atomic_block"):
        return _django(store, connection)
    raise UnknownConnection(f"{type(connection).__module__}.{type(connection).__qualname__} is not supported here.")


def _is_async(connection: Any) -> bool:
    return type(connection).__name__.startswith("Async") or "async" in type(connection).__name__.lower()


def _require(store: Store, kind: str) -> None:
    if store.kind != kind:
        raise UnknownConnection(f"This log lives in {store.kind}, but the connection belongs to {kind}.")


def _check_psycopg(connection: Any) -> None:
    import psycopg

    idle = connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    if connection.autocommit and idle:
        raise OutboxNeedsTransaction


def _psycopg(connection: Any, sql: str, params: Mapping[str, Any] | None) -> Sequence[Any] | None:
    from psycopg.rows import tuple_row

    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(_percent(sql), params)
        return cursor.fetchone() if cursor.description else None


@cache
def _percent(sql: str) -> str:
    return re.sub(r"(?<![:\w]):(\w+)", r"%(\1)s", sql)


def _sqlalchemy(store: Store, connection: Any) -> Execute:
    from sqlalchemy import text
    from sqlalchemy.orm import Session, scoped_session

    if isinstance(connection, Session | scoped_session):
        connection = connection.connection()
    dialect = connection.dialect.name
    _require(store, "sqlite" if dialect == "sqlite" else dialect)
    if str(connection.get_execution_options().get("isolation_level", "")).upper() == "AUTOCOMMIT" or (
        connection.get_isolation_level() == "AUTOCOMMIT"
    ):
        raise OutboxNeedsTransaction

    def execute(sql: str, params: Mapping[str, Any] | None) -> Sequence[Any] | None:
        result = connection.execute(text(sql), dict(params or {}))
        row = result.fetchone() if result.returns_rows else None
        return None if row is None else tuple(row)

    return execute


def _django(store: Store, connection: Any) -> Execute:
    _require(store, {"sqlite": "sqlite", "postgresql": "postgresql"}.get(connection.vendor, str(connection.vendor)))
    connection.ensure_connection()
    if connection.get_autocommit() and not connection.in_atomic_block:
        raise OutboxNeedsTransaction

    def execute(sql: str, params: Mapping[str, Any] | None) -> Sequence[Any] | None:
        with connection.cursor() as cursor:
            cursor.execute(_percent(sql), dict(params) if params is not None else None)
            return cursor.fetchone() if cursor.description else None

    return execute


@asynccontextmanager
async def _async(store: Store, connection: Any) -> AsyncIterator[Callable[..., Any]]:
    kind = _module(connection)
    if kind == "psycopg" and _is_async(connection):
        _require(store, "postgresql")
        _check_psycopg(connection)
        yield lambda sql, params: _psycopg_async(connection, sql, params)
        return
    if kind == "sqlalchemy" and _is_async(connection):
        from sqlalchemy.ext.asyncio import AsyncSession

        target = await connection.connection() if isinstance(connection, AsyncSession) else connection
        run = await target.run_sync(lambda plain: _sqlalchemy(store, plain))

        async def execute(sql: str, params: Mapping[str, Any] | None) -> Any:
            return await target.run_sync(lambda plain: run(sql, params))

        yield execute
        return
    raise UnknownConnection(
        f"append_async needs an async connection, not {type(connection).__module__}.{type(connection).__qualname__}."
    )


async def _psycopg_async(connection: Any, sql: str, params: Mapping[str, Any] | None) -> Any:
    from psycopg.rows import tuple_row

    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(_percent(sql), params)
        return await cursor.fetchone() if cursor.description else None


def run(store: Store, tx: Transaction, event: NewEvent, chosen_id: bool) -> Appended:
    """The same steps in a transaction of Penstock's own."""
    running = steps(store, event, chosen_id)
    try:
        block, params = next(running)
        while True:
            block, params = running.send(tx.neutral(block, params))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]

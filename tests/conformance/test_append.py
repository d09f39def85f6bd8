"""Append: the caller's transaction, refused events, and repeated ids."""

from __future__ import annotations

import asyncio
import sqlite3
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest

import penstock
from tests.support.raw_sql import raw
from tests.support.sqlalchemy_url import sqlalchemy_url

# --- the outbox -------------------------------------------------------------------------------------------------------


def path_of(url: str) -> str:
    return url.removeprefix("sqlite:///")


class Plain:
    """sqlite3 and psycopg, by hand."""

    def __init__(self, url: str) -> None:
        if url.startswith("sqlite"):
            self.connection: Any = sqlite3.connect(path_of(url), timeout=30)
        else:
            import psycopg

            self.connection = psycopg.connect(url)

    def execute(self, sql: str) -> None:
        self.connection.execute(sql)

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()

    def close(self) -> None:
        self.connection.close()


class Alchemy:
    """An SQLAlchemy Connection or Session."""

    def __init__(self, url: str, *, session: bool) -> None:
        from sqlalchemy import create_engine
        from sqlalchemy.orm import Session

        self.engine = create_engine(sqlalchemy_url(url))
        self.connection: Any = Session(self.engine) if session else self.engine.connect()

    def execute(self, sql: str) -> None:
        from sqlalchemy import text

        self.connection.execute(text(sql))

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()

    def close(self) -> None:
        self.connection.close()
        self.engine.dispose()


class Django:
    """A Django connection inside atomic()."""

    def __init__(self, url: str) -> None:
        from tests.support.django_setup import connect

        self.connection, self._atomic = connect(url)
        self._block = self._atomic(using=self.connection.alias)
        self._block.__enter__()

    def execute(self, sql: str) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(sql)

    def commit(self) -> None:
        self._block.__exit__(None, None, None)
        self._block = self._atomic(using=self.connection.alias)
        self._block.__enter__()

    def rollback(self) -> None:
        error = RuntimeError("roll back")
        self._block.__exit__(RuntimeError, error, None)
        self._block = self._atomic(using=self.connection.alias)
        self._block.__enter__()

    def close(self) -> None:
        self._block.__exit__(RuntimeError, RuntimeError("roll back"), None)
        self.connection.close()


CALLERS = {
    "plain": Plain,
    "sqlalchemy": lambda url: Alchemy(url, session=False),
    "sqlalchemy-session": lambda url: Alchemy(url, session=True),
    "django": Django,
}


@pytest.mark.shows("K01", "K03")
@pytest.mark.parametrize("how", CALLERS)
def test_an_event_commits_or_rolls_back_with_the_callers_transaction(log: penstock.Log, log_url: str, how: str) -> None:
    with raw(log_url) as sql:
        sql("create table shop (id integer)")
    caller = CALLERS[how](log_url)
    options = {"ordering_key": "c-1", "headers": {"a": "b"}, "metadata": {"m": 1}, "partition_key": "p"}
    try:
        caller.execute("insert into shop (id) values (1)")
        log.append("orders", {"n": 1}, type="order.created", connection=caller.connection, **options)
        assert log.read("orders") == [], "visible before the caller commits"
        caller.rollback()
        assert log.read("orders") == []
        caller.execute("insert into shop (id) values (2)")
        chosen = penstock.event_id("order-2")
        answer = log.append(
            "orders", {"n": 2}, type="order.created", connection=caller.connection, event_id=chosen, **options
        )
        again = log.append("orders", {"n": 2}, type="order.created", connection=caller.connection, event_id=chosen)
        assert (answer.event_id, answer.duplicate, again.duplicate) == (chosen, False, True)
        assert again.offset == answer.offset
        with pytest.raises(penstock.DuplicateMismatch):  # the transaction is still usable
            log.append("orders", {"n": 3}, type="order.created", connection=caller.connection, event_id=chosen)
        with pytest.raises(penstock.InvalidInput):
            log.append("orders", {"n": 3}, type="", connection=caller.connection)
        caller.commit()
    finally:
        caller.close()
    with raw(log_url) as sql:
        assert sql("select id from shop") == [(2,)]
    (event,) = log.read("orders")
    assert (event.event_id, event.json(), event.event_type) == (chosen, {"n": 2}, "order.created")
    assert (event.ordering_key, event.partition_key) == ("c-1", "p")
    assert (event.headers, event.metadata) == ({"a": "b"}, {"m": 1})
    assert abs((datetime.now(UTC) - event.created_at).total_seconds()) < 60


@pytest.mark.shows("K01")
@pytest.mark.parametrize("how", ["psycopg", "connection", "session"])
def test_on_async_connections_an_event_commits_or_rolls_back_with_the_callers_transaction(
    log: penstock.Log, log_url: str, how: str
) -> None:
    if how == "psycopg" and log_url.startswith("sqlite"):
        how = "connection"  # psycopg is for PostgreSQL only
    with raw(log_url) as sql:
        sql("create table shop (id integer)")

    async def work() -> None:
        engine = None
        if how == "psycopg":
            import psycopg

            connection: Any = await psycopg.AsyncConnection.connect(log_url)
        else:
            from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

            engine = create_async_engine(sqlalchemy_url(log_url, driver="+aiosqlite"))
            connection = AsyncSession(engine) if how == "session" else await engine.connect()
        try:
            for keep in (False, True):
                await run(connection, "insert into shop (id) values (1)", how)
                answer = await log.append_async(
                    "orders", {"keep": keep}, type="t", connection=connection, event_id=penstock.event_id("a")
                )
                assert not answer.duplicate and log.read("orders") == []
                again = await log.append_async(
                    "orders", {"keep": keep}, type="t", connection=connection, event_id=penstock.event_id("a")
                )
                assert again.duplicate
                await (connection.commit() if keep else connection.rollback())
        finally:
            await connection.close()
            if engine is not None:
                await engine.dispose()

    async def run(connection: Any, statement: str, how: str) -> None:
        if how == "psycopg":
            await connection.execute(statement)
        else:
            from sqlalchemy import text

            await connection.execute(text(statement))

    asyncio.run(work())
    assert [event.json() for event in log.read("orders")] == [{"keep": True}]
    with raw(log_url) as sql:
        assert sql("select count(*) from shop") == [(1,)]


@pytest.mark.shows("K01")
def test_autocommit_and_unknown_connections_are_refused(log: penstock.Log, log_url: str) -> None:
    from sqlalchemy import create_engine

    with raw(log_url) as sql:
        with pytest.raises(penstock.OutboxNeedsTransaction):
            log.append("orders", {}, type="t", connection=sql.connection)
        sql("begin")
        log.append("orders", {}, type="t", connection=sql.connection)  # autocommit, but in a transaction
        sql("rollback")
    engine = create_engine(sqlalchemy_url(log_url)).execution_options(isolation_level="AUTOCOMMIT")
    with engine.connect() as connection, pytest.raises(penstock.OutboxNeedsTransaction):
        log.append("orders", {}, type="t", connection=connection)
    engine.dispose()
    for strange in (object(), "postgresql://…", 7):
        with pytest.raises(penstock.InvalidInput) as caught:
            log.append("orders", {}, type="t", connection=strange)
        assert caught.value.code == "unknown_connection"
    other = sqlite3.connect(":memory:") if log_url.startswith("postgres") else None
    if other is not None:
        with pytest.raises(penstock.InvalidInput):
            log.append("orders", {}, type="t", connection=other)
        other.close()
    assert log.read("orders") == []


# --- what is refused --------------------------------------------------------------------------------------------------

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no type": ({"payload": {}, "type": None}, "missing_field"),
    "empty type": ({"payload": {}, "type": ""}, "missing_field"),
    "no payload": ({"payload": None, "type": "t"}, "missing_field"),
    "odd type": ({"payload": {}, "type": "order created"}, "invalid_name"),
    "sql in type": ({"payload": {}, "type": "t'; drop table x; --"}, "invalid_name"),
    "long type": ({"payload": {}, "type": "t" * 129}, "invalid_name"),
    "type of another kind": ({"payload": {}, "type": 7}, "invalid_name"),
    "oversized": ({"payload": b"x" * (1024 * 1024 + 1), "type": "t"}, "too_large"),
    "not JSON": ({"payload": {"a": object()}, "type": "t"}, "invalid_payload"),
    "lone surrogate": ({"payload": {"a": "\ud800"}, "type": "t"}, "invalid_payload"),
    "infinite depth": ({"payload": "see below", "type": "t"}, "invalid_payload"),
    "naive time": ({"payload": {}, "type": "t", "available_at": datetime(2026, 1, 1)}, "naive_datetime"),
    "no time": ({"payload": {}, "type": "t", "available_at": "tomorrow"}, "invalid_input"),
    "bad id": ({"payload": {}, "type": "t", "event_id": "order-7"}, "invalid_input"),
    "long key": ({"payload": {}, "type": "t", "ordering_key": "k" * 513}, "too_large"),
    "empty key": ({"payload": {}, "type": "t", "ordering_key": ""}, "invalid_input"),
    "NUL in key": ({"payload": {}, "type": "t", "ordering_key": "a\0b"}, "invalid_input"),
    "surrogate in key": ({"payload": {}, "type": "t", "ordering_key": "\ud800"}, "invalid_input"),
    "headers not text": ({"payload": {}, "type": "t", "headers": {"a": 1}}, "invalid_input"),
    "headers too large": ({"payload": {}, "type": "t", "headers": {"a": "x" * 9000}}, "too_large"),
    "NUL in headers": ({"payload": {}, "type": "t", "headers": {"a": "\0"}}, "invalid_input"),
    "metadata no mapping": ({"payload": {}, "type": "t", "metadata": [1]}, "invalid_input"),
    "odd content type": ({"payload": b"", "type": "t", "content_type": "a\nb"}, "invalid_input"),
}
nested: Any = []
for _ in range(10_000):
    nested = [nested]
BAD["infinite depth"][0]["payload"] = nested


@pytest.mark.shows("K02")
@pytest.mark.parametrize("what", BAD)
def test_bad_events_are_refused_and_nothing_is_written(log: penstock.Log, what: str) -> None:
    fields, code = BAD[what]
    payload = fields["payload"]
    with pytest.raises(penstock.PenstockError) as caught:
        log.append("orders", payload, **{name: value for name, value in fields.items() if name != "payload"})
    assert caught.value.code == code and caught.value.hint
    with pytest.raises(penstock.PenstockError) as caught:
        log.append_many("orders", [{"payload": {}, "type": "t"}, fields])
    assert caught.value.code == code and "Event 1" in caught.value.message
    assert log.read("orders") == []


@pytest.mark.shows("K02")
@pytest.mark.parametrize("stream", [None, "", "a b", "x" * 129, "-a", "a/b", "a\0", 'a"; drop table x', 7])
def test_bad_stream_names_are_refused(log: penstock.Log, stream: Any) -> None:
    for append in (
        lambda: log.append(stream, {}, type="t"),
        lambda: log.append_many(stream, [{"payload": {}, "type": "t"}]),
        lambda: log.create_group(stream, "g"),
        lambda: log.create_group("s", stream),
    ):
        with pytest.raises(penstock.InvalidInput) as caught:
            append()
        assert caught.value.code in ("missing_field", "invalid_name")
    with raw(log.store.url) as sql:
        assert sql("select count(*) from penstock.events") == [(0,)]
        assert sql("select count(*) from penstock.groups") == [(0,)]


@pytest.mark.shows("K02")
def test_payloads_survive_byte_for_byte(log: penstock.Log) -> None:
    bodies = [
        b"",
        b"\0\xff binary",
        b"x" * (1024 * 1024),
        {"n": None, "ü": "✓", "big": 2**53},
        "text",
        0,
        False,
        [],
        {},
    ]
    ids = [log.append("orders", body, type="t").event_id for body in bodies]
    read = log.read("orders")
    assert [event.event_id for event in read] == ids
    for event, body in zip(read, bodies, strict=True):
        assert event.payload == body if isinstance(body, bytes) else event.json() == body
    assert log.append_many("bulk", [{"payload": body, "type": "t"} for body in bodies]).duplicates == 0
    assert [event.payload for event in log.read("bulk")] == [event.payload for event in read]


# --- the same id ------------------------------------------------------------------------------------------------------


@pytest.mark.shows("K03")
def test_the_same_id_is_stored_once(log: penstock.Log) -> None:
    one = penstock.event_id("order-7")
    first = log.append("orders", {"n": 1}, type="t", event_id=one)
    again = log.append("orders", {"n": 1}, type="t", event_id=str(one))
    assert (first.duplicate, again.duplicate, again.offset) == (False, True, first.offset)
    for other in ({"payload": {"n": 2}, "type": "t"}, {"payload": {"n": 1}, "type": "u"}):
        with pytest.raises(penstock.DuplicateMismatch):
            log.append("orders", other["payload"], type=str(other["type"]), event_id=one)
    with pytest.raises(penstock.DuplicateMismatch):
        log.append("other", {"n": 1}, type="t", event_id=one)
    many = [{"payload": {"n": n}, "type": "t", "event_id": penstock.event_id(f"m{n}")} for n in range(5)]
    assert log.append_many("orders", many).duplicates == 0
    assert log.append_many("orders", [*many, {"payload": {}, "type": "t"}]).duplicates == 5
    with pytest.raises(penstock.DuplicateMismatch):
        log.append_many("orders", [{**many[0], "payload": {"n": 99}}, {"payload": {"new": 1}, "type": "t"}])
    same_twice = {"payload": {}, "type": "t", "event_id": uuid.uuid4()}
    assert log.append_many("orders", [same_twice, same_twice]).duplicates == 1
    assert len(log.read("orders")) == 1 + 5 + 1 + 1


@pytest.mark.shows("K03")
def test_a_ulid_is_accepted_as_an_event_id(log: penstock.Log) -> None:
    answer = log.append("orders", {}, type="t", event_id="01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert answer.event_id == uuid.UUID("01563e3a-b5d3-d676-4c61-efb99302bd5b")


@pytest.mark.shows("K03")
def test_a_duplicate_in_a_strict_transaction_does_not_abort_it(
    postgres_log: penstock.Log, postgres_log_url: str
) -> None:
    """In REPEATABLE READ the database hides the other row; the caller's transaction must still continue."""
    import psycopg

    one = penstock.event_id("both")
    with psycopg.connect(postgres_log_url) as caller:
        caller.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        caller.execute("select count(*) from penstock.events")
        postgres_log.append("orders", {}, type="t", event_id=one)
        with pytest.raises(psycopg.errors.SerializationFailure):
            postgres_log.append("orders", {}, type="t", event_id=one, connection=caller)
        caller.execute("select 1")
        caller.commit()
    assert len(postgres_log.read("orders")) == 1

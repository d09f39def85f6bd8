"""The SQLite store: one file, one writer at a time, the interpreter's own `sqlite3` and nothing else.

A second SQLite library on the same file in one process drops the locks of the first.
"""

from __future__ import annotations

import os
import re
import sqlite3
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from typing import Any, cast

from penstock.core.columns import Columns, RowColumns
from penstock.core.event import EventColumns, NewEvent
from penstock.core.finding import Finding
from penstock.core.lanes import slice_of
from penstock.core.lease import LeaseRow
from penstock.core.user_sql import UserSqlError, check_user_sql
from penstock.errors import CommitUnknown, EffectFailed, InvalidUrl
from penstock.stores import blocks
from penstock.stores.base import Call, Conflict, Row, StatementHook, Transaction
from penstock.stores.clock import Clock
from penstock.stores.sqlite import bulk
from penstock.stores.sqlite.checkpoint import Checkpointer
from penstock.stores.sqlite.connections import Connections
from penstock.stores.sqlite.faults import IOERR, code_of, is_the_stores, named, patiently
from penstock.stores.sqlite.sight import SqliteSight
from penstock.stores.sqlite.values import encode, id_text, micros, rows_of, users

_THESE = "/* these */"  # in a block: the events that are named, if any are
_AT_ONCE = 5_000  # offsets written into one statement
_ROWS_AT_ONCE = 1_000  # read in one piece


@cache
def _statements() -> dict[str, tuple[str, ...]]:
    """The blocks; some are several statements with `;;` between them."""
    return {name: tuple(re.split(r"^;;$", text, flags=re.MULTILINE)) for name, text in blocks.load("sqlite").items()}


class SqliteTransaction:
    """One transaction on this thread's connection."""

    finds_lanes = False

    def __init__(self, store: SqliteStore, connection: sqlite3.Connection) -> None:
        self._store = store
        self._connection = connection
        self._cursor = connection.cursor()
        self._savepoints = 0

    def _execute(self, block: str, params: dict[str, Any]) -> Iterator[sqlite3.Cursor]:
        """Run a block; of several statements only the last one's answer counts."""
        hook = self._store.hook
        if hook is not None:
            hook("before", block)
        *first, last = _statements()[block]
        texts = self._naming(last, params) if _THESE in last else [last]
        encoded = {name: encode(value) for name, value in params.items()}
        for text in first:
            self._cursor.execute(text, encoded)
        for text in texts:
            yield self._cursor.execute(text, encoded)
        if hook is not None:
            hook("after", block)

    def _naming(self, text: str, params: dict[str, Any]) -> list[str]:
        """The view looks up offsets that stand in the statement; SQLite pushes no subquery down into its arms."""
        offsets = params.get("offsets")
        ids = params.get("event_ids", params.get("ids"))
        if offsets is None and ids is not None:
            found = self._cursor.execute(self._store.blocks["operate.offsets"], {"ids": encode(list(ids))})
            offsets = [row[0] for row in found.fetchall()]
        if offsets is None:
            return [text]
        return [
            text.replace(_THESE, f'and v."offset" in ({",".join(map(str, offsets[start : start + _AT_ONCE]))})')
            for start in range(0, len(offsets), _AT_ONCE)
        ]

    def rows(self, block: str, **params: Any) -> list[Row]:
        return [row for cursor in self._execute(block, params) for row in rows_of(cursor)]

    def one(self, block: str, **params: Any) -> Row | None:
        return next(iter(self.rows(block, **params)), None)

    def run(self, block: str, **params: Any) -> int:
        return sum(cursor.rowcount for cursor in self._execute(block, params))

    def both(self, first: Call, second: Call) -> tuple[Row | None, Row | None]:
        return self.one(first[0], **first[1]), self.one(second[0], **second[1])

    def later(self, block: str, **params: Any) -> None:
        self.run(block, **params)

    def now(self) -> datetime:
        return self._store.now()

    def look(self, block: str, **params: Any) -> list[Row]:
        return self.rows(block, now=self._store.now(), **params)

    def finish(
        self, block: str, *, read: tuple[str, Mapping[str, Any]] | None = None, **params: Any
    ) -> tuple[list[Row], Columns | None]:
        """One round trip is as good as another here; leaving the transaction commits."""
        rows = self.rows(block, **params)
        if read is None:
            return rows, None
        found = [cursor.fetchall() for cursor in self._execute(read[0], dict(read[1]))]
        return rows, RowColumns(found[-1])

    def forget(self) -> None:
        """A transaction that wrote nothing costs nothing to commit."""

    def horizon(self, last: int | None = None) -> int:
        if last is not None:
            return last
        row = self.one("horizon.last")
        assert row is not None
        return int(row.last)

    def append(self, events: Sequence[NewEvent] | EventColumns, *, unique: bool) -> int:
        hook = self._store.hook
        if hook is not None:
            hook("before", "append")
        created_at = self._store.now()
        duplicates = bulk.append(self._connection, self._store.blocks, events, unique=unique, created_at=created_at)
        if hook is not None:
            hook("after", "append")
        return duplicates

    def stage(self, events: Sequence[NewEvent], attempt: uuid.UUID) -> None:
        hook = self._store.hook
        if hook is not None:
            hook("before", "stage")
        bulk.stage(self._connection, self._store.blocks, events, attempt)
        if hook is not None:
            hook("after", "stage")

    def stage_rows(self, rows: Sequence[tuple[int | None, bytes]], attempt: uuid.UUID) -> None:
        name = id_text(attempt)
        self._connection.executemany(
            self._store.blocks["pipeline.insert"], ((name, offset, fields.decode()) for offset, fields in rows)
        )

    def user_sql(self, sql: str, params: Sequence[Any]) -> None:
        hook = self._store.hook
        if hook is not None:
            hook("before", "user_sql")
        check_user_sql(sql)
        cursor = self._connection.cursor()
        try:
            cursor.execute(sql, tuple(users(value) for value in params))
            returns_rows = cursor.description is not None
        except (sqlite3.Error, sqlite3.Warning, OverflowError, TypeError, ValueError) as error:
            if is_the_stores(error):
                raise
            if not self._connection.in_transaction:  # OR ROLLBACK: what was settled before it is gone, too
                raise EffectFailed(f"A statement rolled the whole settle back: {error}.") from error
            raise UserSqlError(error, str(error)) from error
        finally:
            cursor.close()
        if returns_rows:
            raise UserSqlError(None, f"the statement returns rows, and nobody would read them: {sql[:120]}")
        if hook is not None:
            hook("after", "user_sql")

    def check_user_sql_so_far(self) -> None:
        """Nothing to do: Penstock's own connections check no foreign keys, and nothing else waits for the commit."""

    def neutral(self, block: str, params: Mapping[str, Any]) -> Sequence[Any] | None:
        hook = self._store.hook
        if hook is not None:
            hook("before", block)
        found = self._cursor.execute(self._store.blocks[block], params).fetchall()
        if hook is not None:
            hook("after", block)
        return cast(Sequence[Any], found[0]) if found else None

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        self._savepoints += 1
        name = f"penstock_{self._savepoints}"
        self._connection.execute(f"savepoint {name}")
        try:
            yield
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute(f"rollback to {name}")
                self._connection.execute(f"release {name}")
            raise
        self._connection.execute(f"release {name}")

    def wake(self) -> None:
        """Nothing to do: idle workers see the file change."""


class SqliteStore:
    """A log in one SQLite file, in tables that start with `penstock_`."""

    kind = "sqlite"
    claims_at_once = False
    has_standbys = False
    errors_abort = False
    large_reads_need: tuple[str, ...] = ()

    def __init__(self, url: str, *, clock: Clock | None = None, hook: StatementHook | None = None) -> None:
        self.path = path_of(url)
        self.url = f"sqlite:///{self.path}"
        self.clock = clock
        self.hook = hook
        self.blocks: Mapping[str, str] = blocks.load("sqlite")
        self.connections = Connections(self.path)
        self._checkpointer = Checkpointer(self.path)

    def now(self) -> datetime:
        """The clock of this machine, which every process that can open the file shares."""
        return datetime.now(UTC) if self.clock is None else self.clock.now()

    @contextmanager
    def transaction(self, *, write: bool = True, only: bool = False) -> Iterator[SqliteTransaction]:
        with named(self.path), self.connections.lend() as connection:
            try:
                patiently(lambda: _begin(connection, write))
                yield SqliteTransaction(self, connection)
                if write:
                    self._commit(connection)
            finally:
                if connection.in_transaction:
                    connection.execute("rollback")
            if write:
                self._checkpointer.after_commit(connection)

    def _commit(self, connection: sqlite3.Connection) -> None:
        if self.hook is not None:
            self.hook("before", "commit")
        try:
            patiently(lambda: connection.execute("commit"))
        except sqlite3.Error as error:
            if code_of(error) == IOERR:  # the commit may have reached the disk all the same
                raise CommitUnknown from error
            raise
        if self.hook is not None:
            self.hook("after", "commit")

    # --- reading -------------------------------------------------------------------------------------------------

    def read_events(self, stream: str, after: int, upto: int, limit: int) -> Columns:
        return self.read_columns("read.events", stream=stream, after=after, upto=upto, limit=limit)

    def read_lease(self, lease: LeaseRow) -> Columns:
        block, params = self.lease_query(lease)
        return self.read_columns(block, **params)

    def check_arrow(self) -> None:
        """Rows come as they are."""

    def lease_query(self, lease: LeaseRow) -> tuple[str, dict[str, Any]]:
        if lease.offsets is not None:
            return "read.rows", {"group_id": lease.group_id, "offsets": list(lease.offsets)}
        block = "read.lane" if lease.lanes > 1 else "read.range"
        first, last = slice_of(lease.lane, lease.lanes)
        return block if not lease.holes else "read.holes", {
            "stream": lease.stream,
            "low": lease.low,
            "high": lease.high,
            "binding": lease.binding,
            "first_bucket": first,
            "last_bucket": last,
            "holes": list(lease.holes),
        }

    def read_columns(self, block: str, **params: Any) -> Columns:
        encoded = {name: encode(value) for name, value in params.items()}
        if self.hook is not None:
            self.hook("before", block)
        try:
            found = self._fetch(block, encoded)
        except Conflict:
            found = self._fetch(block, encoded)
        if self.hook is not None:
            self.hook("after", block)
        return RowColumns(found)

    def _fetch(self, block: str, encoded: dict[str, Any]) -> list[Any]:
        with named(self.path), self.connections.lend() as connection:
            return patiently(lambda: connection.execute(self.blocks[block], encoded).fetchall())

    def read_pieces(
        self, block: str, columns: Sequence[str] | None = None, **params: Any
    ) -> Iterator[list[tuple[Any, ...]]]:
        """Lists of rows, with all their columns."""
        encoded = {name: encode(value) for name, value in params.items()}
        with named(self.path), self.connections.lend() as connection:
            cursor = patiently(lambda: connection.execute(self.blocks[block], encoded))
            try:
                while rows := cursor.fetchmany(_ROWS_AT_ONCE):
                    yield rows
            finally:
                cursor.close()

    # --- the rest ------------------------------------------------------------------------------------------------

    @property
    def told_now(self) -> datetime | None:
        return self.now()

    def only(self, block: str, **params: Any) -> Sequence[Sequence[Any]]:
        with self.transaction() as tx:
            return tx.rows(block, **params)

    def append_one(self, event: NewEvent) -> int | None:
        return None

    def outbox_params(self, event: NewEvent) -> dict[str, Any]:
        params = event._asdict()
        params["event_id"] = id_text(event.event_id)
        params["available_at"] = None if event.available_at is None else micros(event.available_at)
        if self.clock is not None:
            params["created_at"] = micros(self.clock.now())
        return params

    def is_own(self, found: Sequence[Any]) -> bool:
        """The main file of the caller's connection, by what the file system calls it: paths may differ."""
        file = found[2]
        if isinstance(file, bytes):  # a text factory of the caller's
            file = os.fsdecode(file)
        return bool(file) and os.path.exists(file) and os.path.samefile(file, self.path)

    @property
    def safe_url(self) -> str:
        return self.url

    def sight(self) -> SqliteSight:
        return SqliteSight(self.path, self.connections, self.blocks["wake.look"])

    def warm(self) -> None:
        """Nothing has to be loaded."""

    def in_own_words(self, sql: str) -> str:
        return sql.replace("penstock.", "penstock_")

    def exists(self) -> bool:
        return os.path.exists(self.path)

    def migrate(self) -> list[str]:
        from penstock.stores.sqlite import schema

        return schema.migrate(self)

    def health(self, tx: Transaction, now: datetime) -> Iterator[Finding]:
        from penstock.stores.sqlite import health

        return health.findings(tx)

    def make_home(self) -> bool:
        """A file is at home wherever it is."""
        return False

    def override_clock(self) -> None:
        with self.connections.lend() as connection, named(self.path):
            if connection.execute(self.blocks["clock.overridden"]).fetchone() is None:
                patiently(lambda: connection.execute(self.blocks["clock.override"]))

    def close(self) -> None:
        self.connections.close()


def _begin(connection: sqlite3.Connection, write: bool) -> None:
    """A writer is the only one from here on; a reader sees from here on what is committed now."""
    if write:
        connection.execute("begin immediate")
        return
    connection.execute("begin deferred")
    try:
        connection.execute("select 1 from sqlite_master limit 1").fetchall()
    except BaseException:
        connection.execute("rollback")
        raise


def path_of(url: str) -> str:
    """The file of a URL: three slashes and a relative path, or four with an absolute one. Links are resolved, because
    SQLite names its other files after the file itself."""
    prefix = "sqlite:///"
    path = url[len(prefix) :]
    if not url.startswith(prefix) or not path or path.startswith((":memory:", "file:", "?")):
        raise InvalidUrl(
            f"{url[:80]!r} names no file: a log has many connections, so it cannot live in memory. "
            "Three slashes begin a relative path, four an absolute one."
        )
    if "?" in path or "\0" in path:
        raise InvalidUrl(f"{url[:80]!r} has options; a SQLite log takes none.")
    return os.path.realpath(path)

"""The SQLite store: one file, one writer at a time, the interpreter's own `sqlite3` and nothing else.

A second SQLite library on the same file in one process drops the locks of the first.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, LiteralString

from penstock.core.columns import Columns, RowColumns
from penstock.core.event import NewEvent
from penstock.core.finding import Finding
from penstock.core.lanes import slice_of
from penstock.core.lease import LeaseRow
from penstock.errors import CommitUnknown, InvalidUrl
from penstock.stores import blocks
from penstock.stores.base import Clock, Conflict, StatementHook, Transaction
from penstock.stores.sqlite.checkpoint import Checkpointer
from penstock.stores.sqlite.connections import Connections
from penstock.stores.sqlite.faults import IOERR, code_of, named, patiently
from penstock.stores.sqlite.shown import written
from penstock.stores.sqlite.sight import SqliteSight
from penstock.stores.sqlite.transaction import SqliteTransaction
from penstock.stores.sqlite.values import encode, id_text, micros

_ROWS_AT_ONCE = 1_000  # read in one piece


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
        self.blocks: Mapping[str, LiteralString] = blocks.load("sqlite")
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

    def neutral_params(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return {name: encode(value) for name, value in params.items()}

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

    def shown(self, block: str, params: Mapping[str, Any]) -> str:
        return written(self.blocks[block], params)

    def table_name(self, table: str) -> str:
        return table

    def exists(self) -> bool:
        return os.path.exists(self.path)

    def migrate(self) -> list[str]:
        from penstock.stores.sqlite import schema

        return schema.migrate(self)

    def health(self, tx: Transaction, now: datetime) -> Iterator[Finding]:
        from penstock.stores.sqlite import health

        return health.findings(tx)

    def mend_indexes(self) -> list[str]:
        wanted = blocks.index_statements("sqlite")
        with self.transaction(write=False) as tx:
            known = {row.name for row in tx.rows("doctor.indexes")}
        with self.connections.lend() as connection, named(self.path):
            for name in wanted.keys() - known:
                patiently(lambda name=name: connection.execute(wanted[name]))  # type: ignore[misc]
        return sorted(wanted.keys() - known)

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

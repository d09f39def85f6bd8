"""A transaction on SQLite: named blocks, the last offset as the horizon, and statements of the user's."""

from __future__ import annotations

import re
import sqlite3
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from penstock.core.columns import Columns, RowColumns
from penstock.core.event import EventColumns, NewEvent, StoredEvent
from penstock.core.observe import Observed
from penstock.core.target import StagingTable, Target
from penstock.core.user_sql import UserSqlError, check_user_sql
from penstock.errors import EffectFailed
from penstock.stores import blocks
from penstock.stores.base import Call, Row
from penstock.stores.sqlite import bulk
from penstock.stores.sqlite.faults import is_the_stores
from penstock.stores.sqlite.table import staged_rows, staging_table
from penstock.stores.sqlite.values import encode, id_text, rows_of, users

if TYPE_CHECKING:
    from penstock.stores.sqlite.store import SqliteStore

_THESE = "/* these */"  # in a block: the events that are named, if any are
_AT_ONCE = 5_000  # offsets written into one statement


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
        self.observed: list[Observed] = []

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

    def together(self, *calls: Call) -> list[list[Row]]:
        return [self.rows(block, **params) for block, params in calls]

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

    def put_back(self, events: Sequence[StoredEvent]) -> list[int]:
        hook = self._store.hook
        if hook is not None:
            hook("before", "restore.put")
        found = bulk.put_back(self._connection, self._store.blocks, events)
        if hook is not None:
            hook("after", "restore.put")
        return found

    def stage(self, events: Sequence[NewEvent], attempt: uuid.UUID, sources: Sequence[int] | None = None) -> None:
        hook = self._store.hook
        if hook is not None:
            hook("before", "stage")
        bulk.stage(self._connection, self._store.blocks, events, attempt, sources)
        if hook is not None:
            hook("after", "stage")

    def stage_rows(self, table: StagingTable, attempt: uuid.UUID, first: int, rows: Any) -> None:
        name = id_text(attempt)
        self._connection.executemany(
            self._store.blocks["pipeline.insert"], ((name, *one) for one in staged_rows(table, rows))
        )

    def staging_table(self, target: Target) -> StagingTable:
        return staging_table(target)

    def shrink_staging(self) -> None:
        """The file keeps its space for what comes next."""

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

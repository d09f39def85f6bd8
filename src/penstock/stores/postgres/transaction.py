"""A transaction on PostgreSQL: named blocks, the database's time, the horizon, and statements of the user's."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import orjson
import psycopg
from psycopg.rows import namedtuple_row, tuple_row

from penstock.core.columns import Columns, RowColumns
from penstock.core.event import EventColumns, NewEvent, StoredEvent
from penstock.core.observe import Observed
from penstock.core.target import StagingTable, Target
from penstock.core.user_sql import UserSqlError, check_user_sql
from penstock.errors import CommitUnknown
from penstock.stores.base import Call, Row
from penstock.stores.blocks import percent
from penstock.stores.postgres import faults

if TYPE_CHECKING:
    from penstock.stores.postgres.home import Place
    from penstock.stores.postgres.store import PostgresStore

_SETTINGS = (
    "select clock_timestamp(), set_config('lock_timeout', '30s', true), set_config('statement_timeout', '120s', true), "
    "set_config('idle_in_transaction_session_timeout', '10s', true), set_config('jit', 'off', true)"
)
# Blocks that come first in their transaction, and make its settings themselves.
HAVE_SETTINGS = {"claim.look", "claim.first", "settle.whole", "append.single", "jobs.due", "jobs.claim_first"}


def _elapsed() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class PostgresTransaction:
    """One transaction on one pooled connection."""

    finds_lanes = True

    def __init__(self, store: PostgresStore, connection: psycopg.Connection[Any], place: Place) -> None:
        self._store = store
        self._raw = connection
        self._place = place
        self._began: datetime | None = None
        self._began_here = 0.0
        self._bounds: list[int] | None = None  # announced by appenders, as the last look found them
        self._later: list[Call] = []  # to be sent with what comes next
        self.observed: list[Observed] = []
        self.ended = False  # committed with the last statement
        self.worth_a_commit = True

    @property
    def _connection(self) -> psycopg.Connection[Any]:
        """The connection, inside the transaction."""
        if self._began is None or self._later:
            self._send([])
        return self._raw

    def _execute(self, block: str, params: dict[str, Any]) -> psycopg.Cursor[Any]:
        return self._send([(block, params)])[0]

    def _send(self, calls: list[Call], *, plain: int = 0, commit: bool = False) -> list[psycopg.Cursor[Any]]:
        """Run blocks in one round trip, the last `plain` of them for bare tuples, behind those left for later.

        The first statements of a transaction take its BEGIN and its settings along, the last one may take the COMMIT
        along. A later statement starts when the one before it has ended, and sees what was committed by then. Who kills
        the process between two statements gets them one by one.
        """
        hook = self._store.hook
        waited = len(self._later)
        calls, self._later = [*self._later, *calls], []
        cursors = [
            self._raw.cursor(row_factory=tuple_row if number >= len(calls) - plain else namedtuple_row, binary=True)
            for number in range(len(calls))
        ]
        settings = None
        if hook is not None or (self._began is not None and len(calls) == 1 and not commit):
            if self._began is None:
                self._send_settings()
            for (block, params), cursor in zip(calls, cursors, strict=True):
                self._run_one(block, params, cursor)
            if commit:
                self._store.commit(self._raw)
        else:
            try:
                with self._raw.pipeline():
                    if self._began is None and not (calls and calls[0][0] in HAVE_SETTINGS):
                        settings = self._ask_settings()
                    for (block, params), cursor in zip(calls, cursors, strict=True):
                        cursor.execute(self._store.blocks[block], sendable(params), prepare=False)
                    if commit:
                        self._raw.execute("commit", prepare=False)
            except psycopg.Error as error:
                if commit and faults.leaves_it_open(self._raw, error):
                    raise CommitUnknown from error
                raise
        if settings is not None:
            self._begun(settings)
        self.ended = commit
        return cursors[waited:]

    def _run_one(self, block: str, params: dict[str, Any], cursor: psycopg.Cursor[Any]) -> None:
        hook = self._store.hook
        if hook is not None:
            hook("before", block)
        cursor.execute(self._store.blocks[block], sendable(params), prepare=False)
        if hook is not None:
            hook("after", block)

    def _send_settings(self) -> None:
        self._begun(self._ask_settings())

    def _ask_settings(self) -> psycopg.Cursor[Any]:
        return self._raw.execute(_SETTINGS, prepare=False, binary=True)

    def _begun(self, settings: psycopg.Cursor[Any]) -> None:
        row = settings.fetchone()
        assert row is not None
        # Counted from the answer on: what is due now must not lie ahead of the database's own clock.
        self._began, self._began_here = row[0], _elapsed()

    def rows(self, block: str, **params: Any) -> list[Row]:
        return self._execute(block, params).fetchall()

    def one(self, block: str, **params: Any) -> Row | None:
        return self._execute(block, params).fetchone()

    def run(self, block: str, **params: Any) -> int:
        return self._execute(block, params).rowcount

    def together(self, *calls: Call) -> list[list[Row]]:
        return [cursor.fetchall() for cursor in self._send(list(calls))]

    def later(self, block: str, **params: Any) -> None:
        self._later.append((block, params))
        if self._store.hook is not None:  # who kills the process between two statements finds them in their order
            self._send([])

    def commit(self) -> None:
        """Commit, together with what was left for later."""
        if self._later:
            self._send([], commit=True)
        else:
            self._store.commit(self._raw)

    def now(self) -> datetime:
        """The database's time when the transaction began, and what has passed since: no wall clock of ours is asked,
        and time that the machine slept counts, too."""
        if self._store.clock is not None:
            return self._store.clock.now()
        if self._began is None:
            self._send([])
        assert self._began is not None
        return self._began + timedelta(seconds=_elapsed() - self._began_here)

    def look(self, block: str, **params: Any) -> list[Row]:
        found = self.rows(block, now=self._store.told_now, **params)
        if found:
            self._bounds = found[0].bounds
            if self._began is None:
                self._began, self._began_here = found[0].looked_at, _elapsed()
        return found

    def finish(
        self, block: str, *, read: tuple[str, Mapping[str, Any]] | None = None, **params: Any
    ) -> tuple[list[Row], Columns | None]:
        calls = [(block, params)]
        if read is not None:
            calls.append((read[0], dict(read[1])))
        cursors = self._send(calls, plain=len(calls) - 1, commit=True)
        return cursors[0].fetchall(), None if read is None else RowColumns(cursors[1].fetchall())

    def forget(self) -> None:
        self.worth_a_commit = False

    def horizon(self, last: int | None = None) -> int:
        self._place.check_readable()
        if last is None:
            first = self.one("horizon.last")
            assert first is not None
            last, self._bounds = int(first.last), None
        if self._place.standby:  # no locks of appenders here, and the sequence runs ahead
            replayed = self.one("horizon.replayed")
            return min(last, 0 if replayed is None else int(replayed.upto))
        bounds = self._bounds
        if bounds is None:
            bounds = [row.bound for row in self.rows("horizon.announced")]
        return min([last, *(unfold(bound, last) for bound in bounds)])

    def append(self, events: Sequence[NewEvent] | EventColumns, *, unique: bool) -> int:
        from penstock.stores.postgres import bulk

        hook = self._store.hook
        if hook is not None:
            hook("before", "append")
        duplicates = bulk.append(self._connection, self._store, events, unique=unique)
        if hook is not None:
            hook("after", "append")
        return duplicates

    def put_back(self, events: Sequence[StoredEvent]) -> list[int]:
        new = [one.event for one in events]
        found = self.rows(
            "restore.put",
            stream=new[0].stream,
            offsets=[one.offset for one in events],
            event_ids=[one.event_id for one in new],
            event_types=[one.event_type for one in new],
            payloads=[one.payload for one in new],
            content_types=[one.content_type for one in new],
            headers=[one.headers for one in new],
            metadata=[one.metadata for one in new],
            partition_keys=[one.partition_key for one in new],
            ordering_keys=[one.ordering_key for one in new],
            times=[one.available_at for one in new],
            created=[one.created_at for one in events],
        )
        return [row.offset for row in found]

    def stage(self, events: Sequence[NewEvent], attempt: uuid.UUID, sources: Sequence[int] | None = None) -> None:
        from penstock.stores.postgres import bulk

        hook = self._store.hook
        if hook is not None:
            hook("before", "stage")
        bulk.stage(self._connection, self._store, events, attempt, sources)
        if hook is not None:
            hook("after", "stage")

    def stage_rows(self, table: StagingTable, attempt: uuid.UUID, first: int, rows: Any) -> None:
        from penstock.stores.postgres.copy_text import copy_lines, copy_statement

        lines = copy_lines(table, attempt, first, rows)
        with self._connection.cursor() as cursor, cursor.copy(copy_statement(table)) as stream:
            stream.write(lines)

    def staging_table(self, target: Target) -> StagingTable:
        from penstock.stores.postgres.table import staging_table

        return staging_table(self, self._store.schema, target)

    def shrink_staging(self) -> None:
        self.run("pipeline.shrink_staging")

    def user_sql(self, sql: str, params: Sequence[Any]) -> None:
        hook = self._store.hook
        if hook is not None:
            hook("before", "user_sql")
        check_user_sql(sql)
        with _users_fault(), self._connection.cursor() as cursor:
            # Binary results: the protocol then takes one statement only, and `insert …; commit` is refused.
            cursor.execute(placeholders(sql), tuple(params), prepare=False, binary=True)
            returns_rows = cursor.description is not None
        if returns_rows:
            raise UserSqlError(None, f"the statement returns rows, and nobody would read them: {sql[:120]}")
        if hook is not None:
            hook("after", "user_sql")

    def check_user_sql_so_far(self) -> None:
        with _users_fault():
            self._connection.execute("set constraints all immediate")
        self._connection.execute("set constraints all deferred")  # for the statements of the next event

    def neutral(self, block: str, params: Mapping[str, Any]) -> Sequence[Any] | None:
        hook = self._store.hook
        if hook is not None:
            hook("before", block)
        with self._connection.cursor() as cursor:
            cursor.execute(percent(self._store.blocks[block]), params, prepare=False)
            row = cast(Sequence[Any] | None, cursor.fetchone())
        if hook is not None:
            hook("after", block)
        return row

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        with self._connection.transaction():
            yield

    def wake(self) -> None:
        if self._store.wakes.due():
            self.later("wake.notify", channel=channel_of(self._store.schema))


def channel_of(schema: str) -> str:
    """Where idle workers of a log listen."""
    return f"{schema}.wake"


def sendable(params: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a block as the driver takes them."""
    for name, value in params.items():
        if type(value) is list:
            params[name] = orjson.dumps(value).decode() if name == "rows" else _array(value)
    return params


def _array(values: list[Any]) -> Any:
    """Numbers as PostgreSQL writes an array of them: psycopg would take much longer over thousands of offsets."""
    if values and all(type(one) is int for one in values):
        return f"{{{','.join(map(str, values))}}}"
    return values


@contextmanager
def _users_fault() -> Iterator[None]:
    """Whatever goes wrong inside is the user's statement, unless the database asks to try again, is gone, or has
    run out of something."""
    try:
        yield
    except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
        raise
    except psycopg.Error as error:
        if isinstance(error, psycopg.OperationalError) and (error.sqlstate is None or faults.is_the_servers(error)):
            raise
        raise UserSqlError(error, str(error)) from error
    except (UnicodeError, OverflowError) as error:
        raise UserSqlError(error, str(error)) from error


def unfold(bound: int, last: int) -> int:
    """An announced bound in full: 31 bits of it were announced, and it is near the sequence's last value."""
    distance = (last - bound) % 2**31
    return last - distance if distance < 2**30 else last - distance + 2**31


def placeholders(sql: str) -> str:
    """`?` outside quotes becomes psycopg's placeholder, so that one statement serves both stores."""
    out: list[str] = []
    quote: str | None = None
    for letter in sql:
        if quote:
            quote = None if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == "?":
            out.append("%s")
            continue
        out.append("%%" if letter == "%" else letter)
    return "".join(out)

"""The PostgreSQL store: a pool, transactions with local timeouts, and nothing that outlives a transaction.

Everything here works through PgBouncer in transaction mode: no prepared statements, no session settings, no
LISTEN on pooled connections.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from typing import Any, LiteralString
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from penstock.core import moments
from penstock.core.columns import Columns, RowColumns
from penstock.core.event import NewEvent
from penstock.core.finding import Finding
from penstock.core.lanes import slice_of
from penstock.core.lease import LeaseRow
from penstock.core.limits import BUSY_SECONDS, WAKE_EVERY_SECONDS
from penstock.core.urls import without_password
from penstock.errors import CommitUnknown, InvalidUrl, MissingDependency, StoreClosed, StoreUnavailable
from penstock.stores import blocks, tables
from penstock.stores.base import Clock, StatementHook, Transaction
from penstock.stores.wake import Seldom, readable

try:
    import psycopg
    from psycopg.adapt import Loader
    from psycopg.pq import Format
    from psycopg_pool import PoolTimeout

    from penstock.stores.postgres import arrow, faults
    from penstock.stores.postgres.home import Home
    from penstock.stores.postgres.pool import WarmPool
    from penstock.stores.postgres.shown import written
    from penstock.stores.postgres.sight import PostgresSight
    from penstock.stores.postgres.transaction import HAVE_SETTINGS, PostgresTransaction, channel_of, sendable
except ImportError as error:  # pragma: no cover - shown by the packaging test
    raise MissingDependency("PostgreSQL needs psycopg: pip install 'penstock[postgres]'.") from error

# What is claimed must lie below the horizon, so every statement sees what committed before it. What is only looked at
# is of one moment: counts that are read one after the other would call finished what was claimed in between.
_WRITING = psycopg.IsolationLevel.READ_COMMITTED
_READING = psycopg.IsolationLevel.REPEATABLE_READ
_POOL = 8  # connections, unless a limit is given …
_STREAMING = 16  # … and those of the Arrow driver on top; with a limit, a quarter of it

# A pool that cannot connect tries ever less often, and nothing but a new request wakes it: so it gives up soon, and is
# asked again. Else a database that was away for a minute would be away for another one.
_RECONNECT_SECONDS = 1.0
_ASK_SECONDS = 2.0


class PostgresStore:
    """A log in the schema `penstock` (or the one named by `?schema=`) of a PostgreSQL database."""

    kind = "postgresql"
    claims_at_once = True
    has_standbys = True
    errors_abort = True
    large_reads_need: tuple[str, ...] = ("pyarrow",)

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None = None,
        hook: StatementHook | None = None,
        connections: int | None = None,
        patience_seconds: float | None = None,
    ) -> None:
        streaming = _STREAMING if connections is None else max(1, connections // 4)
        self.url = url
        self.libpq_url, self.schema = split_url(url)
        self.clock = clock
        self.hook = hook
        self.blocks: Mapping[str, LiteralString] = blocks.load("postgres", self.schema)
        self._pool: WarmPool | None = WarmPool(
            self.libpq_url,
            min_size=0,
            max_size=_POOL if connections is None else max(1, connections - streaming),
            open=False,
            reconnect_timeout=_RECONNECT_SECONDS,
            kwargs={"prepare_threshold": None, "application_name": "penstock", "connect_timeout": 10},
            configure=_prepare,
        )
        self._patience_seconds = BUSY_SECONDS if patience_seconds is None else patience_seconds
        self._opened = False
        self._identity: tuple[int, ...] | None = None
        self._home = Home(self.blocks)
        self._arrow = arrow.ArrowReader(self.libpq_url, self.safe_url, streaming)
        self.wakes = Seldom(WAKE_EVERY_SECONDS)

    # --- connections ---------------------------------------------------------------------------------------------

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection[Any]]:
        """A connection of the pool, outside any transaction; what goes wrong on it gets a name."""
        pool = self._open_pool()
        with faults.named(self.safe_url, self.schema):
            connection = self._take(pool)
            try:
                with connection:
                    if connection.isolation_level is not _WRITING:
                        connection.isolation_level = _WRITING
                    if connection.autocommit:
                        connection.autocommit = False
                    yield connection
            finally:
                pool.putconn(connection)

    def _take(self, pool: WarmPool) -> psycopg.Connection[Any]:
        """A connection on which the server has not spoken unasked: that would be the end of its session. No round trip.

        (The pool's own check sleeps ever longer with every connection that it finds ended.)
        """
        until = time.monotonic() + self._patience_seconds
        while True:
            left = until - time.monotonic()
            try:
                connection = pool.getconn(max(0.0, min(left, _ASK_SECONDS)))
            except PoolTimeout as error:
                if left <= _ASK_SECONDS:
                    raise self._none_free() from error
                continue
            if _lives(connection):
                return connection
            connection.close()
            pool.putconn(connection)

    def only(self, block: str, **params: Any) -> Sequence[Sequence[Any]]:
        """Without BEGIN and COMMIT. Single events are appended, claimed and settled this way, where every call counts:
        what `connection` and `transaction` do is done here in fewer steps."""
        assert block in HAVE_SETTINGS
        if self.hook is not None:  # who kills the process between a statement and its commit finds both
            with self.transaction() as tx:
                return tx.finish(block, **params)[0]
        pool = self._open_pool()
        try:
            connection = self._take(pool)
            try:
                if not connection.autocommit:
                    connection.autocommit = True
                self._home.place(connection).check_writable()
                return self._execute(connection, block, params)
            finally:
                pool.putconn(connection)
        except faults.DRIVERS as error:
            found = faults.meaning(error, self.safe_url, self.schema)
            if found is None:
                raise
            raise found from error

    def _execute(
        self, connection: psycopg.Connection[Any], block: str, params: dict[str, Any]
    ) -> list[tuple[Any, ...]]:
        try:
            return connection.cursor(binary=True).execute(self.blocks[block], params, prepare=False).fetchall()
        except psycopg.Error as error:
            if faults.leaves_it_open(connection, error):
                raise CommitUnknown from error
            raise

    def _open_pool(self) -> WarmPool:
        """Fail at once, not after the pool's patience, if the database cannot be reached."""
        if self._pool is None:
            raise StoreClosed
        if not self._opened:
            self._reach()
            self._pool.open()
            self._opened = True
        return self._pool

    def _none_free(self) -> StoreUnavailable:
        self._reach()
        return StoreUnavailable(f"No connection to {self.safe_url} was free for {self._patience_seconds:g} s.")

    def _reach(self) -> None:
        """Connect once, beside the pool, which does not say why it cannot."""
        try:
            psycopg.connect(self.libpq_url, connect_timeout=10).close()
        except psycopg.Error as error:
            raise StoreUnavailable(f"Cannot reach {self.safe_url}: {faults.words(error)}.") from error

    @cached_property
    def safe_url(self) -> str:
        """The URL without its password."""
        return without_password(self.url)

    @contextmanager
    def transaction(self, *, write: bool = True) -> Iterator[PostgresTransaction]:
        with self.connection() as connection:
            place = self._home.place(connection)
            if not write:
                connection.isolation_level = _READING
            if write:
                place.check_writable()
            tx = PostgresTransaction(self, connection, place)
            yield tx
            if tx.ended:
                return
            if write and tx.worth_a_commit:
                tx.commit()
            else:
                connection.rollback()

    def health(self, tx: Transaction, now: datetime) -> Iterator[Finding]:
        from penstock.stores.postgres import health

        return health.findings(tx, self.schema, now)

    def mend_indexes(self) -> list[str]:
        from penstock.stores.postgres import indexes

        return indexes.mend(self)

    def make_home(self) -> bool:
        with self.connection() as connection:
            return self._home.move_in(connection)

    def commit(self, connection: psycopg.Connection[Any]) -> None:
        """Commit; `CommitUnknown` if the connection broke on the way."""
        if self.hook is not None:
            self.hook("before", "commit")
        try:
            connection.commit()
        except psycopg.Error as error:
            if faults.leaves_it_open(connection, error):
                raise CommitUnknown from error
            raise
        if self.hook is not None:
            self.hook("after", "commit")

    # --- reading -------------------------------------------------------------------------------------------------

    def read_events(self, stream: str, after: int, upto: int, limit: int) -> Columns:
        return self._read("read.events", stream=stream, after=after, upto=upto, limit=limit)

    def read_lease(self, lease: LeaseRow) -> Columns:
        block, params = self.lease_query(lease)
        return self._read(block, many=lease.members >= arrow.FROM_EVENTS, **params)

    def lease_query(self, lease: LeaseRow) -> tuple[str, dict[str, Any]]:
        if lease.offsets is not None:
            return "read.rows", {"group_id": lease.group_id, "offsets": list(lease.offsets)}
        if lease.found is not None:
            return "read.found", {"found": lease.found}
        first, last = slice_of(lease.lane, lease.lanes)
        block = "read.range" if lease.lanes == 1 else "read.lane"
        return block if lease.whole else "read.members", {
            "stream": lease.stream,
            "low": lease.low,
            "high": lease.high,
            "binding": lease.binding,
            "first_bucket": first,
            "last_bucket": last,
            "holes": list(lease.holes),
            "members": lease.members,
        }

    def read_columns(self, block: str, **params: Any) -> Columns:
        return self._read(block, **params)

    def read_pieces(self, block: str, columns: Sequence[str] | None = None, **params: Any) -> Iterator[Any]:
        """Arrow record batches, with times and ids as people know them. What is not among the `columns` the database
        does not even look at."""
        query = arrow.literal(arrow.plain(self.blocks[block]), params)
        if columns is not None:
            names = ", ".join(f'"{name}"' for name in columns)
            query = f"select {names} from ({query.rstrip().rstrip(';')}) chosen"
        return self._arrow.stream(query)

    def check_arrow(self) -> None:
        if not arrow.available():
            raise MissingDependency(
                "Reading PostgreSQL with Spark needs its Arrow driver: pip install 'penstock[arrow]'."
            )

    def _read(self, block: str, *, many: bool = False, **params: Any) -> Columns:
        if self.hook is not None:
            self.hook("before", block)
        found: Columns
        if many and arrow.available():
            found = self._arrow.read(arrow.literal(self.blocks[block], params))
        else:
            with self.connection() as connection, connection.cursor(binary=True) as cursor:
                cursor.execute(self.blocks[block], sendable(params), prepare=False)
                found = RowColumns(cursor.fetchall())
        if self.hook is not None:
            self.hook("after", block)
        return found

    # --- the rest ------------------------------------------------------------------------------------------------

    @property
    def told_now(self) -> datetime | None:
        return None if self.clock is None else self.clock.now()

    def append_one(self, event: NewEvent) -> int | None:
        if self.clock is not None:
            return None
        wake = {"wake": self.wakes.due(), "channel": channel_of(self.schema)}
        rows = self.only("append.single", **self.outbox_params(event), **wake)
        return int(rows[0][0]) if rows else None

    def outbox_params(self, event: NewEvent) -> dict[str, Any]:
        params = event._asdict()
        params["event_id"] = str(event.event_id)
        if self.clock is not None:
            params["created_at"] = self.clock.now()
        return params

    def neutral_params(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return {name: str(value) if isinstance(value, uuid.UUID) else value for name, value in params.items()}

    def is_own(self, found: Sequence[Any]) -> bool:
        wanted = tuple(int(part) for part in found)
        if self._identity != wanted:  # a restart or a failover changes our own, too
            with self.transaction(write=False) as tx:
                mine = tx.neutral("outbox.identity", {})
            self._identity = None if mine is None else tuple(int(part) for part in mine)
        return self._identity == wanted

    def sight(self) -> PostgresSight:
        return PostgresSight(self)

    def warm(self) -> None:
        """Load what large reads need, so that the first of them need not."""
        if arrow.available():
            arrow.load()

    def in_own_words(self, sql: str) -> str:
        return blocks.in_schema(sql, self.schema)

    def shown(self, block: str, params: Mapping[str, Any]) -> str:
        return written(self.blocks[block], params)

    def table_name(self, table: str) -> str:
        return tables.quoted(table)

    def exists(self) -> bool:
        return True  # connecting says more

    def migrate(self) -> list[str]:
        from penstock.stores.postgres import schema

        return schema.migrate(self)

    def override_clock(self) -> None:
        with self.connection() as connection:
            if connection.execute(self.blocks["clock.overridden"], prepare=False).fetchone() is None:
                connection.execute(self.blocks["clock.override"], prepare=False)
            connection.commit()

    def close(self) -> None:
        if self._pool is not None and self._opened:
            self._pool.close()
        self._pool = None
        self._arrow.close()


def _lives(connection: psycopg.Connection[Any]) -> bool:
    return not connection.closed and not readable([connection.fileno()], 0)


def _prepare(connection: psycopg.Connection[Any]) -> None:
    """Times are in UTC, whatever the session's zone is."""
    connection.adapters.register_loader("timestamptz", _UtcLoader)


class _UtcLoader(Loader):
    """Binary timestamptz: microseconds since 2000, in UTC."""

    format = Format.BINARY

    def load(self, data: Any) -> datetime:
        return moments.of_postgres(bytes(data))


def split_url(url: str) -> tuple[str, str]:
    """The URL as libpq knows it, and the schema."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    schema = query.pop("schema", "penstock")
    if not blocks.SCHEMA_RULE.match(schema):
        raise InvalidUrl(f"{schema!r} cannot be the name of a schema: use a-z, 0-9 and _.")
    return urlunsplit(parts._replace(query=urlencode(query))), schema

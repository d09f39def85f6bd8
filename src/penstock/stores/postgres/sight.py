"""A look-out's own connection to PostgreSQL: it polls, and where the session is its own it listens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from penstock.core.look import Look
from penstock.errors import StoreUnavailable
from penstock.stores.postgres.transaction import channel_of, unfold
from penstock.stores.wake import readable

if TYPE_CHECKING:
    from penstock.stores.postgres.store import PostgresStore

# A connection that is gone without a word is noticed within seconds.
_SETTINGS: dict[str, Any] = {
    "application_name": "penstock look-out",
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "tcp_user_timeout": 10_000,
}


class PostgresSight:
    """Never a connection of the pool. Behind a pooler another session answers each statement: there it only polls."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._notified = False
        self._expecting = False
        self._horizon = 0
        self.listens = False
        with self._named_errors():
            self._connection = psycopg.connect(store.libpq_url, autocommit=True, prepare_threshold=None, **_SETTINGS)
            try:
                self._listen()
            except BaseException:
                self._connection.close()
                raise

    def _listen(self) -> None:
        """A pooler tells its clients another number than that of the session they are lent."""
        row = self._connection.execute("select pg_backend_pid()").fetchone()
        if row is None or row[0] != self._connection.info.backend_pid:
            return
        self._connection.add_notify_handler(self._hear)
        self._connection.execute(sql.SQL("listen {}").format(sql.Identifier(channel_of(self._store.schema))))
        self.listens = True

    def _hear(self, notify: psycopg.Notify) -> None:
        self._notified = True

    def look(self) -> Look:
        with self._named_errors():
            row = self._connection.execute(self._store.blocks["wake.look"]).fetchone()
            assert row is not None
            last, *rest = row
            if last != self._horizon:  # in a later statement: who drew a number before has announced himself
                bounds = self._connection.execute(self._store.blocks["horizon.announced"]).fetchall()
                self._horizon = min([last, *(unfold(bound, last) for (bound,) in bounds)])
        return Look(self._horizon, *rest)

    def expect(self, waiting: bool) -> None:
        if not self.listens or waiting == self._expecting:
            return
        with self._named_errors():
            row = self._connection.execute(self._store.blocks["wake.listen" if waiting else "wake.leave"]).fetchone()
        assert row is not None
        # Where an appender looks at the lock at this moment, we get it the next time.
        self._expecting = waiting and bool(row[0])

    def wait(self, seconds: float | None, kick: int) -> bool:
        if not self._notified:
            watched = [kick, self._connection.fileno()] if self.listens else [kick]
            if set(readable(watched, seconds)) - {kick}:
                self._read()
        heard, self._notified = self._notified, False
        return heard

    def _read(self) -> None:
        with self._named_errors():
            self._connection.pgconn.consume_input()
            while self._connection.pgconn.notifies() is not None:
                self._notified = True

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except (psycopg.Error, OSError) as error:
            why = str(error).strip().partition("\n")[0]
            raise StoreUnavailable(f"The look-out's connection to {self._store.safe_url} broke: {why}.") from error

    def close(self) -> None:
        with suppress(psycopg.Error):
            self._connection.close()

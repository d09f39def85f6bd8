"""A connection pool in which every thread keeps to its own connection, as long as that is free."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
from psycopg_pool import ConnectionPool


class WarmPool(ConnectionPool[psycopg.Connection[Any]]):
    """A server process compiles what it is asked for, so a thread's next claim is several times faster there.

    psycopg_pool gives out the one that has rested longest. This overrides a method of its own; if that is renamed, the
    pool works as it did, and a test fails.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        self._of_thread = threading.local()
        super().__init__(*args, **options)

    def _get_ready_connection(self, timeout: float | None) -> psycopg.Connection[Any] | None:
        mine = getattr(self._of_thread, "connection", None)
        if mine is not None and mine in self._pool:
            self._pool.remove(mine)
            self._pool.appendleft(mine)  # the first one is given out
        found = super()._get_ready_connection(timeout)
        self._of_thread.connection = found
        return found

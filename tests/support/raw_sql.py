"""Plain SQL on the log's own database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class RawSql:
    """Runs SQL that is written with PostgreSQL's names; translates it for SQLite."""

    def __init__(self, connection: Any, kind: str) -> None:
        self.connection = connection
        self.kind = kind

    def __call__(self, sql: str, *params: Any) -> list[tuple[Any, ...]]:
        if self.kind == "sqlite":
            sql = sql.replace("penstock.", "penstock_").replace("%s", "?")
            params = tuple(str(one) if type(one).__name__ == "UUID" else one for one in params)
        cursor = self.connection.execute(sql, params)
        return [tuple(row) for row in cursor.fetchall()] if cursor.description else []

    @property
    def refusal(self) -> type[Exception]:
        """What the driver raises when the database refuses a statement."""
        if self.kind == "sqlite":
            return sqlite3.DatabaseError
        import psycopg

        return psycopg.Error


@contextmanager
def raw(url: str) -> Iterator[RawSql]:
    """Open a separate connection, as the owner, in autocommit."""
    if url.startswith("sqlite"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=600)
        try:
            yield RawSql(connection, "sqlite")
        finally:
            connection.close()
        return
    import psycopg

    with psycopg.connect(url, autocommit=True) as pg:
        yield RawSql(pg, "postgresql")

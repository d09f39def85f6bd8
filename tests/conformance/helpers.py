"""Small steps that many tests share."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import penstock


def orders(log: penstock.Log, count: int, stream: str = "orders", **fields: Any) -> list[Any]:
    """Append so many events; returns their ids."""
    return list(
        log.append_many(
            stream, [{"payload": {"n": n}, "type": "order.created", **fields} for n in range(count)]
        ).event_ids
    )


def drain(
    log: penstock.Log, stream: str = "orders", group: str = "g", limit: int = 1000, worker: str = "w"
) -> list[Any]:
    """Claim and settle until nothing is due; returns the ids in the order they were handed out."""
    seen = []
    while (lease := log.claim(stream, group, limit=limit, claimed_by=worker)) is not None:
        seen += [event.event_id for event in lease.events]
        lease.settle()
    return seen


def states(log: penstock.Log, stream: str = "orders", group: str = "g") -> dict[Any, str]:
    """The state of every delivery."""
    return {one.event_id: str(one.state) for one in log.deliveries(stream, group, limit=1_000_000)}


class RawSql:
    """Plain SQL on the log's own database, written for PostgreSQL's names and translated for SQLite."""

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
        """What the driver raises when the database says no."""
        if self.kind == "sqlite":
            return sqlite3.DatabaseError
        import psycopg

        return psycopg.Error


@contextmanager
def raw(url: str) -> Iterator[RawSql]:
    """A connection of the test's own, as the owner, in autocommit."""
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

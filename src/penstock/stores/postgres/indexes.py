"""Create indexes again that are missing, or that a failed build has left unusable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

from penstock.stores import blocks

if TYPE_CHECKING:
    from penstock.stores.postgres.store import PostgresStore


def mend(store: PostgresStore) -> list[str]:
    """Concurrently, so that nobody waits; returns the names."""
    wanted = blocks.index_statements("postgres", store.schema)
    with store.transaction(write=False) as tx:
        valid = {row.name: bool(row.valid) for row in tx.rows("doctor.indexes")}
    mended = []
    with store.connection() as connection:
        connection.autocommit = True
        for name, statement in wanted.items():
            if valid.get(name):
                continue
            if name in valid:
                connection.execute(
                    sql.SQL("drop index concurrently {}").format(sql.Identifier(store.schema, name)), prepare=False
                )
            connection.execute(statement.replace(" index ", " index concurrently ", 1).encode(), prepare=False)
            mended.append(name)
    return mended

"""How much room the log takes."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.log.transact import look
from penstock.stores.base import Store


@dataclass(frozen=True, slots=True)
class Size:
    """A table with its indexes, or the whole file; `rows` is an estimate."""

    name: str
    bytes: int
    rows: int | None


def sizes(store: Store) -> list[Size]:
    """Return what takes room, the largest first. Nothing is counted."""
    return [Size(row.name, int(row.bytes), row.rows) for row in look(store, lambda tx: tx.rows("sizes.tables"))]

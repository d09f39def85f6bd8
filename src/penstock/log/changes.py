"""What has changed: the newest of everything that pages show, in one cheap look."""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock.log.transact import look
from penstock.stores.base import Store


class Newest(NamedTuple):
    """A field differs from the last look if there is something new of its kind. Only that matters, not its value."""

    events: Any
    leases: Any
    audit: Any
    runs: Any
    operations: Any

    def changed_since(self, before: Newest) -> list[str]:
        """Return the names of the fields that differ.

        >>> Newest(7, 1, 0, 0, 0).changed_since(Newest(6, 1, 0, 0, 0))
        ['events']
        """
        return [name for name, now, then in zip(self._fields, self, before, strict=True) if now != then]


def newest(store: Store) -> Newest:
    """Look once. It costs the same however long the log is."""
    row = look(store, lambda tx: tx.one("changes.newest"))
    assert row is not None
    return Newest(row.events, (row.leases, row.settled), row.audit, row.runs, row.operations)

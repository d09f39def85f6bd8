"""Drain: whether a group has anything left to do, and where the log ends."""

from __future__ import annotations

from penstock.log import groups
from penstock.log.transact import look
from penstock.stores.base import Store, Transaction


def end(store: Store) -> int:
    """Return the last assigned offset; its transaction may still be open."""
    row = look(store, lambda tx: tx.one("horizon.last"))
    assert row is not None
    return int(row.last)


def drained(store: Store, stream: str, group: str) -> bool:
    """Return whether nothing is in work, due or waiting for a retry up to the horizon.

    Events dated in the future and halted keys do not count.
    """
    return look(store, lambda tx: _drained(tx, stream, group))


def _drained(tx: Transaction, stream: str, group_name: str) -> bool:
    group = groups.get(tx, stream, group_name)
    horizon = tx.horizon()
    row = tx.one(
        "drain.left",
        group_id=group.group_id,
        horizon=horizon,
        now=tx.now(),
        ordered=group.ordered,
        halts=group.halts,
    )
    assert row is not None
    return not row.left

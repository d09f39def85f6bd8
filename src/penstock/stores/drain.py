"""Whether a group has anything left to do, and whether the log has grown."""

from __future__ import annotations

from penstock.stores import groups
from penstock.stores.base import Transaction


def end(tx: Transaction) -> int:
    """The last offset that was given out, by a transaction that may still be open."""
    row = tx.one("horizon.last")
    assert row is not None
    return int(row.last)


def drained(tx: Transaction, stream: str, group_name: str) -> bool:
    """Nothing in work, due or waiting for a retry up to the horizon; what is dated or halted does not count."""
    group = groups.get(tx, stream, group_name)
    horizon = tx.horizon()
    row = tx.one(
        "drain.left",
        group_id=group.group_id,
        horizon=horizon,
        now=tx.now(),
        ordered=group.ordered,
        halts=group.on_dead == "halt",
    )
    assert row is not None
    return not row.left

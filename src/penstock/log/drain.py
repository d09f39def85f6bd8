"""Drain: whether a group has anything left to do, and where the log ends."""

from __future__ import annotations

from penstock.core.lease import Idle
from penstock.log import groups
from penstock.log.transact import look
from penstock.stores.base import Store, Transaction


def end(store: Store) -> int:
    """Return the last assigned offset; its transaction may still be open."""
    row = look(store, lambda tx: tx.one("horizon.last"))
    assert row is not None
    return int(row.last)


def drained(store: Store, stream: str, group: str) -> bool:
    """Return whether nothing is in work, due or waiting for a retry up to the horizon, and all files have their names.

    Events dated in the future and halted keys do not count.
    """
    return look(store, lambda tx: _drained(tx, stream, group))


def idle(store: Store, stream: str, group: str) -> Idle | None:
    """Return what a claim that finds nothing would say; None if one may find something. Claims nothing.

    It says how far the log was before the look: whatever commits during the look then lies beyond.
    """
    before = look(store, lambda tx: tx.horizon())
    return look(store, lambda tx: _idle(tx, stream, group, before))


def _idle(tx: Transaction, stream: str, group_name: str, before: int) -> Idle | None:
    group = groups.get(tx, stream, group_name)
    last = tx.one("horizon.last")
    assert last is not None
    horizon, now = tx.horizon(), tx.now()
    if group.paused:
        return Idle(None, paused=True)
    again = None if group.circuit is None else group.circuit.wait_until(now)
    if again is None:
        found = tx.one("drain.due", group_id=group.group_id, horizon=horizon, now=now)
        assert found is not None
        if found.due:
            return None
        due = tx.one("claim.next_due", group_id=group.group_id, now=now)
        again = min((one for one in (due.row_at, due.returned_at) if one is not None), default=None) if due else None
    seconds = None if again is None else max(0.0, (again - now).total_seconds())
    return Idle(again, horizon=before, end=int(last.last), seconds=seconds)


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

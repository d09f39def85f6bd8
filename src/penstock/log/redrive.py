"""Redrive: DEAD → PENDING with a fresh budget."""

from __future__ import annotations

from datetime import datetime

from penstock.core.event import check_text
from penstock.core.group import Group
from penstock.log import audit, cancel, checks, groups
from penstock.log.selection import Moved, Selection
from penstock.log.transact import transact
from penstock.stores.base import Store, Transaction


def redrive(
    store: Store, stream: str, group: str, which: Selection, *, dry_run: bool, by: str | None, reason: str | None = None
) -> Moved:
    """Give dead letters a new life; the overwritten values stay in the attempt log."""
    author, why = checks.author(by), audit.because(check_text(reason, "reason"))

    def work(tx: Transaction) -> int:
        known = groups.locked(tx, stream, group)
        now = tx.now()
        if not dry_run:
            cancel.answer(tx, known)
        if dry_run:
            return count(tx, known, which)
        moved = move(tx, known, find(tx, known, which), author, now)
        audit.record_for(tx, author, "redrive", known, moved, which.detail() | why)
        return moved

    return Moved(transact(store, work), dry_run)


def find(
    tx: Transaction,
    group: Group,
    which: Selection,
    cutoff: datetime | None = None,
    after: int = 0,
    most: int | None = None,
    not_of: int | None = None,
) -> list[int]:
    """Return the offsets of dead letters, the lowest first; not those that an operation has moved before."""
    where = {"group_id": group.group_id, "after": after, "most": most, "operation": not_of}
    rows = tx.rows("redrive.find", **where, **which.params(cutoff))
    return [row.offset for row in rows]


def count(tx: Transaction, group: Group, which: Selection, cutoff: datetime | None = None) -> int:
    """Count dead letters."""
    row = tx.one("redrive.count", group_id=group.group_id, **which.params(cutoff))
    return 0 if row is None else int(row.deliveries)


def move(
    tx: Transaction, group: Group, offsets: list[int], by: str, now: datetime, operation: int | None = None
) -> int:
    """Give dead letters of a locked group a new life, and note which operation does it."""
    if not offsets:
        return 0
    tx.later("redrive.log", group_id=group.group_id, offsets=offsets, by=by, now=now)
    return tx.run("redrive.move", group_id=group.group_id, offsets=offsets, now=now, operation=operation)

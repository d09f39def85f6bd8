"""Redrive: DEAD → PENDING with a fresh budget."""

from __future__ import annotations

from penstock.log import audit, cancel, checks, groups
from penstock.log.selection import Moved, Selection
from penstock.log.transact import transact
from penstock.stores.base import Store, Transaction


def redrive(store: Store, stream: str, group: str, which: Selection, *, dry_run: bool, by: str | None) -> Moved:
    """Give dead letters a new life; the overwritten values stay in the attempt log."""
    author = checks.author(by)

    def work(tx: Transaction) -> int:
        known = groups.locked(tx, stream, group)
        now = tx.now()
        if not dry_run:
            cancel.answer(tx, known)
        offsets = [row.offset for row in tx.rows("redrive.find", group_id=known.group_id, **which.params())]
        if dry_run:
            return len(offsets)
        tx.run("redrive.log", group_id=known.group_id, offsets=offsets, by=author, now=now)
        moved = tx.run("redrive.move", group_id=known.group_id, offsets=offsets, now=now)
        audit.record_for(tx, author, "redrive", known, moved, which.detail())
        return moved

    return Moved(transact(store, work), dry_run)

"""Purge: dead letters leave the queue for good. They stay DEAD, hidden, until prune takes their events."""

from __future__ import annotations

from datetime import datetime

from penstock.core.delivery import Reason
from penstock.core.event import check_text
from penstock.core.group import Group
from penstock.log import audit, checks, groups, redrive
from penstock.log.selection import Moved, Selection
from penstock.log.transact import transact
from penstock.stores.base import Store, Transaction


def purge(
    store: Store, stream: str, group: str, which: Selection, *, dry_run: bool, by: str | None, reason: str | None = None
) -> Moved:
    """Hide dead letters and let prune take their events; a key that halted at one of them goes on."""
    author, why = checks.author(by), audit.because(check_text(reason, "reason"))

    def work(tx: Transaction) -> int:
        known = groups.locked(tx, stream, group)
        if dry_run:
            return redrive.count(tx, known, which)
        moved = move(tx, known, redrive.find(tx, known, which), author, tx.now())
        audit.record_for(tx, author, "purge", known, moved, which.detail() | why)
        return moved

    return Moved(transact(store, work), dry_run)


def move(
    tx: Transaction, group: Group, offsets: list[int], by: str, now: datetime, outcome: Reason = Reason.PURGED
) -> int:
    """Hide dead letters of a locked group; the reason says why."""
    if not offsets:
        return 0
    params = {"group_id": group.group_id, "offsets": offsets, "outcome": outcome, "now": now}
    tx.run("purge.log", by=by, **params)
    return tx.run("purge.move", **params)

"""Kill: PENDING → CLAIMED → DEAD."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from penstock.core.event import check_text
from penstock.core.group import Group
from penstock.log import audit, checks, groups, waiting
from penstock.log.selection import Moved, ids_of
from penstock.log.transact import transact
from penstock.stores.base import Row, Store, Transaction


def kill(
    store: Store, stream: str, group: str, event_ids: Iterable[Any], reason: str, *, dry_run: bool, by: str | None
) -> Moved:
    """Give up waiting deliveries in one transaction: all of them or none."""
    ids, why, author = ids_of(event_ids), check_text(reason, "reason") or "killed", checks.author(by)

    def work(tx: Transaction) -> int:
        known = groups.locked(tx, stream, group)
        found = waiting.find(tx, known, ids, "killed")
        if dry_run:
            return len(found)
        bury(tx, known, found, why, author)
        detail = {"reason": why, "event_ids": [str(one) for one in ids]}
        audit.record_for(tx, author, "kill", known, len(found), detail)
        return len(found)

    return Moved(transact(store, work), dry_run)


def bury(tx: Transaction, group: Group, found: Sequence[Row], why: str, by: str) -> list[int]:
    """Make waiting deliveries of a locked group DEAD; returns their offsets."""
    now = tx.now()
    offsets = waiting.with_rows(tx, group, found, now)
    params = {"group_id": group.group_id, "offsets": offsets, "now": now}
    tx.run("kill.claim", by=by, **params)
    tx.run("kill.bury", by=by, reason=why, **params)
    tx.run("kill.log", by=by, reason=why, **params)
    return offsets

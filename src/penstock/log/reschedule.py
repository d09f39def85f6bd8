"""Reschedule: change when PENDING deliveries become due."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from penstock.core.event import check_text, check_time
from penstock.errors import InvalidInput
from penstock.log import audit, checks, groups, waiting
from penstock.log.selection import Moved, ids_of
from penstock.log.transact import transact
from penstock.stores.base import Store, Transaction


def reschedule(
    store: Store,
    stream: str,
    group: str,
    event_ids: Iterable[Any],
    available_at: datetime,
    *,
    dry_run: bool,
    by: str | None,
    reason: str | None = None,
) -> Moved:
    """Make waiting deliveries due at another time, in one transaction: all of them or none."""
    ids, due, author = ids_of(event_ids), check_time(available_at, "available_at"), checks.author(by)
    why = audit.because(check_text(reason, "reason"))
    if due is None:
        raise InvalidInput("available_at is missing.")

    def work(tx: Transaction) -> int:
        known = groups.locked(tx, stream, group)
        now = tx.now()
        found = waiting.find(tx, known, ids, "rescheduled")
        if dry_run:
            return len(found)
        offsets = waiting.with_rows(tx, known, found, now)
        tx.run("reschedule.move", group_id=known.group_id, offsets=offsets, available_at=due, now=now)
        tx.run("reschedule.log", group_id=known.group_id, offsets=offsets, by=author, now=now)
        detail = {"available_at": due.isoformat(), "event_ids": [str(one) for one in ids], **why}
        audit.record_for(tx, author, "reschedule", known, len(found), detail)
        return len(found)

    return Moved(transact(store, work), dry_run)

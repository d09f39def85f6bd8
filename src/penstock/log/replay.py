"""Replay: PUBLISHED → PENDING."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from penstock.core.event import check_text
from penstock.core.group import Group
from penstock.log import audit, cancel, checks, groups, positions
from penstock.log.selection import Moved, Selection
from penstock.log.transact import transact
from penstock.stores.base import Row, Store, Transaction


def replay(
    store: Store, stream: str, group: str, which: Selection, *, dry_run: bool, by: str | None, reason: str | None = None
) -> Moved:
    """Deliver finished events again; an event published as part of a range gets a row of its own."""
    author, why = checks.author(by), audit.because(check_text(reason, "reason"))
    return Moved(transact(store, lambda tx: _replay(tx, stream, group, which, dry_run, author, why)), dry_run)


def _replay(
    tx: Transaction, stream: str, group_name: str, which: Selection, dry_run: bool, by: str, why: dict[str, Any]
) -> int:
    group = groups.locked(tx, stream, group_name)
    after, upto = positions.between(tx, stream, which.since, which.until)
    found = find(tx, group, which, after, upto)
    if dry_run or not found:
        return len(found)
    cancel.answer(tx, group)
    moved = move(tx, group, found, by, tx.now())
    audit.record_for(tx, by, "replay", group, moved, which.detail() | why)
    return moved


def find(tx: Transaction, group: Group, which: Selection, after: int, upto: int) -> list[Row]:
    """Return finished deliveries in (after, upto]."""
    where = {"group_id": group.group_id, "stream": group.stream, "after": after, "upto": upto}
    return tx.rows("replay.find", **where, **which.params())


def move(
    tx: Transaction, group: Group, found: Sequence[Row], by: str, now: datetime, operation: int | None = None
) -> int:
    """Deliver what `find` found again, and note which operation does it. The group is locked."""
    rows = [row.offset for row in found if row.has_row]
    ranged = {row.offset: row.replays for row in found if not row.has_row}
    moved = 0
    if rows:
        tx.run("replay.log_rows", group_id=group.group_id, offsets=rows, by=by, now=now)
        moved += tx.run("replay.move_rows", group_id=group.group_id, offsets=rows, now=now, operation=operation)
    if ranged:
        params = {"group_id": group.group_id, "offsets": [*ranged], "now": now}
        tx.run("replay.log_ranged", by=by, **params)
        names = {"stream": group.stream, "group_name": group.group_name}
        moved += tx.run("replay.move_ranged", replays=[*ranged.values()], operation=operation, **names, **params)
    return moved

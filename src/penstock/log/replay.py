"""Replay: PUBLISHED → PENDING."""

from __future__ import annotations

from penstock.log import audit, cancel, checks, groups, positions
from penstock.log.selection import Moved, Selection
from penstock.log.transact import transact
from penstock.stores.base import Store, Transaction


def replay(store: Store, stream: str, group: str, which: Selection, *, dry_run: bool, by: str | None) -> Moved:
    """Deliver finished events again; an event published as part of a range gets a row of its own."""
    author = checks.author(by)
    return Moved(transact(store, lambda tx: _replay(tx, stream, group, which, dry_run, author)), dry_run)


def _replay(tx: Transaction, stream: str, group_name: str, which: Selection, dry_run: bool, by: str) -> int:
    group = groups.locked(tx, stream, group_name)
    now = tx.now()
    after, upto = positions.between(tx, stream, which.since, which.until)
    found = tx.rows("replay.find", group_id=group.group_id, stream=stream, after=after, upto=upto, **which.params())
    if dry_run or not found:
        return len(found)
    cancel.answer(tx, group)
    rows = [row.offset for row in found if row.has_row]
    ranged = {row.offset: row.replays for row in found if not row.has_row}
    moved = 0
    if rows:
        tx.run("replay.log_rows", group_id=group.group_id, offsets=rows, by=by, now=now)
        moved += tx.run("replay.move_rows", group_id=group.group_id, offsets=rows, now=now)
    if ranged:
        params = {"group_id": group.group_id, "offsets": [*ranged], "now": now}
        tx.run("replay.log_ranged", by=by, **params)
        replays = [*ranged.values()]
        moved += tx.run("replay.move_ranged", stream=stream, group_name=group_name, replays=replays, **params)
    audit.record_for(tx, by, "replay", group, moved, which.detail())
    return moved

"""What an operation moves in one transaction, by its kind. The group is locked.

Everything goes in offset order, the lowest first, so that no event of a key is moved before an earlier one of it: what
is moved waits for what was moved before it, as the rows of a key always do.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import orjson

from penstock.core.group import Group
from penstock.core.operation import Kind
from penstock.log import cancel, positions, purge, redrive, replay
from penstock.log.selection import Selection
from penstock.stores.base import Row, Transaction
from penstock.stores.rows import OperationRow

_WINDOW = 1_000  # offsets that a replay examines first …
_WIDEST = 100_000
_WINDOWS = 8  # … and how often, in one transaction


class Batch(NamedTuple):
    """What was moved."""

    moved: int
    upto: int  # nothing is left up to here
    last: bool  # nothing is left at all, or, of canaries, no more can run
    offsets: Sequence[int] = ()


def selection_of(row: OperationRow) -> Selection:
    """Return the filter of an operation."""
    return Selection.of_detail(orjson.loads(row.filter))


def canaries(tx: Transaction, row: OperationRow, group: Group, most: int, now: datetime) -> Batch:
    """Move the first few that can run. What they leave behind is moved with the rest."""
    if row.kind == Kind.REPLAY:
        return batch(tx, row, group, row.moved_upto, most, now)
    which = selection_of(row)
    if group.ordered and group.halts:
        found = tx.rows("redrive.canaries", group_id=group.group_id, most=most, **which.params(row.cutoff_at))
        offsets = [one.offset for one in found]
    else:
        offsets = redrive.find(tx, group, which, row.cutoff_at, 0, most)
    cancel.answer(tx, group)
    moved = redrive.move(tx, group, offsets, row.by, now, row.id)
    return Batch(moved, row.moved_upto, True, offsets)


def batch(tx: Transaction, row: OperationRow, group: Group, after: int, most: int, now: datetime) -> Batch:
    """Move the next ones above an offset."""
    which = selection_of(row)
    if row.kind == Kind.REPLAY:
        return _replay(tx, row, group, which, after, most, now)
    offsets = redrive.find(tx, group, which, row.cutoff_at, after, most, not_of=row.id)
    upto = offsets[-1] if offsets else after
    if row.kind == Kind.PURGE:
        moved = purge.move(tx, group, offsets, row.by, now)
    else:
        cancel.answer(tx, group)
        moved = redrive.move(tx, group, offsets, row.by, now, row.id)
    return Batch(moved, upto, len(offsets) < most, offsets)


def _replay(
    tx: Transaction, row: OperationRow, group: Group, which: Selection, after: int, most: int, now: datetime
) -> Batch:
    """Examine windows of the log, each twice as wide, until enough is found or enough was examined."""
    low, high = positions.between(tx, group.stream, which.since, which.until)
    end = min(high, row.cutoff_offset or 0)
    upto, window = max(after, low), max(_WINDOW, 2 * most)
    found: list[Row] = []
    for _ in range(_WINDOWS):
        if upto >= end or len(found) >= most:
            break
        ahead = min(end, upto + window)
        found += sorted(replay.find(tx, group, which, upto, ahead), key=lambda one: one.offset)
        upto, window = ahead, min(2 * window, _WIDEST)
    if len(found) > most:
        found = found[:most]
        upto = found[-1].offset
    if found:
        cancel.answer(tx, group)
    return Batch(replay.move(tx, group, found, row.by, now, row.id), upto, upto >= end, [one.offset for one in found])

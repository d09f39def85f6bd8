"""Retention: finished jobs leave after `keep_finished` of their type, dead ones after `keep_dead`.

Jobs without a row are removed stretch by stretch from the left, as far as every lease of a stretch has ended long
enough ago; the others by the time in their row. Neither looks at what stays. Each step is one short transaction under
the lock of the group, and adjusts the counts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby
from typing import Any

from penstock.core import limits
from penstock.core.group import Group
from penstock.core.job import GROUP
from penstock.core.observe import JobsRemoved
from penstock.errors import UnknownGroup
from penstock.log import groups
from penstock.log.prune import thin
from penstock.log.transact import look, transact
from penstock.stores.base import Row, Store, Transaction
from penstock.stores.rows import CursorRow


@dataclass(frozen=True, slots=True)
class Removed:
    """The result of a round of retention."""

    jobs: int
    more: bool  # whether it ended before everything was removed


@dataclass(frozen=True, slots=True)
class _Limits:
    """Until when jobs must have ended to be removed; None keeps them."""

    now: datetime
    finished_before: datetime | None
    dead_before: datetime | None


def remove_finished(store: Store, steps: int = limits.RETENTION_STEPS) -> Removed:
    """Remove finished jobs whose time is over, in about so many steps, of all types in turn."""
    least = limits.RESULT_SECONDS
    due = deque(look(store, lambda tx: tx.rows("retention.due", now=tx.now(), least=least)))
    jobs = 0
    while due and steps:
        one = due.popleft()
        with suppress(UnknownGroup):  # deleted in the meantime
            removed = transact(store, partial(_step, one=one))
            jobs, steps = jobs + removed.jobs, steps - bool(removed.jobs)
            if removed.more:
                due.append(one)
    return Removed(jobs, bool(due))


def _step(tx: Transaction, one: Row) -> Removed:
    nothing = Removed(0, more=False)
    group_id = groups.get(tx, one.stream, GROUP).group_id
    tx.run("retention.begin", group_id=group_id)
    turn = tx.one("retention.turn", group_id=group_id)
    if turn is None:
        return nothing  # another process removes jobs of this group
    group = groups.locked(tx, one.stream, GROUP)
    tx.run("prune.lock")  # no group is created and nothing is counted while jobs are removed
    if group.group_id != group_id or len(groups.every(tx, one.stream)) > 1:
        return nothing
    now = tx.now()
    until = _Limits(now, _before(now, one.keep_finished), _before(now, one.keep_dead))
    low = _begin(tx, group, turn)
    swept, high = (nothing, low) if until.finished_before is None else _sweep(tx, group, low, until)
    if (high, group.rewinds) != (turn.swept, turn.rewinds):
        tx.run("retention.swept", group_id=group_id, swept=high, rewinds=group.rewinds)
    rows = 0 if swept.more else _remove_rows(tx, group, until)
    return Removed(swept.jobs + rows, swept.more or rows == limits.RETENTION_BATCH)


def _before(now: datetime, keep: float | None) -> datetime | None:
    return None if keep is None else now - timedelta(seconds=max(keep, limits.RESULT_SECONDS))


def _begin(tx: Transaction, group: Group, turn: Row) -> int:
    """Return where to go on: below it every job that is left has a row, unless a rewind has removed rows since."""
    if turn.rewinds == group.rewinds:
        return int(turn.swept)
    pruned = tx.one("rewind.pruned", stream=group.stream)  # no rewind reaches below it
    return 0 if pruned is None else min(int(turn.swept), int(pruned.upto))


def _sweep(tx: Transaction, group: Group, low: int, until: _Limits) -> tuple[Removed, int]:
    """Remove what has finished in the next stretch; also returns where it ends."""
    most, where = limits.RETENTION_BATCH, {"group_id": group.group_id, "finished_before": until.finished_before}
    row = tx.one("retention.reach", swept=low, rewound=group.rewinds > 0, most=most, **where)
    assert row is not None
    high = max(low, int(row.upto))
    last = tx.one("source.nth", stream=group.stream, low=low, high=high, skip=most - 1)
    if last is not None:
        high = int(last.offset)
    held = tx.one("retention.held", stream=group.stream, low=low, high=high, now=until.now)
    if held is not None and held.offset is not None:
        high, last = int(held.offset) - 1, None
    gone = tx.rows("retention.finished", stream=group.stream, low=low, high=high, **where)
    _remove(tx, group, gone, low, high)
    return Removed(len(gone), more=last is not None), high


def _remove_rows(tx: Transaction, group: Group, until: _Limits) -> int:
    """Remove some jobs that have a row, whose time is over; returns how many."""
    gone = tx.rows(
        "retention.rows",
        group_id=group.group_id,
        finished_before=until.finished_before,
        dead_before=until.dead_before,
        now=until.now,
        most=limits.RETENTION_BATCH,
    )
    _remove(tx, group, gone, 0, 0)
    return len(gone)


def _remove(tx: Transaction, group: Group, gone: Sequence[Any], low: int, high: int) -> None:
    """Remove jobs and count them out; (low, high] is a stretch in which no others without a row are left."""
    if not gone:
        return
    _count_out(tx, group, gone)
    dead = sum(bool(row.dead) for row in gone)
    tx.run("jobs.gone", group_id=group.group_id, completed=len(gone) - dead, exhausted=dead)
    offsets = [int(row.offset) for row in gone]
    tx.run("retention.remove", group_id=group.group_id, stream=group.stream, gone=offsets, low=low, high=high)
    if high:
        thin(tx, group.stream, high)
    tx.observed.append(JobsRemoved(group.stream, len(gone)))


def _count_out(tx: Transaction, group: Group, gone: Sequence[Any]) -> None:
    """Take jobs out of the tally, and out of what the group has passed."""
    ordered = sorted((int(row.offset), str(row.event_type)) for row in gone)
    first, last = ordered[0][0], ordered[-1][0]
    mark = tx.one("tally.last")
    counted = 0 if mark is None else int(mark.upto)
    edges = sorted(int(row.upto) for row in tx.rows("prune.steps", stream=group.stream, low=first - 1, high=last))
    for _, part in groupby(ordered, key=lambda job: bisect_left(edges, job[0])):
        jobs = list(part)
        high = jobs[-1][0]
        if high <= counted:
            counts = Counter(event_type for _, event_type in jobs)
            names, numbers = list(counts), list(counts.values())
            tx.run("prune.tally_now", stream=group.stream, types=names, counts=numbers)
            tx.run("prune.tally_steps", stream=group.stream, types=names, counts=numbers, high=high)
    lanes: list[CursorRow] = tx.rows("claim.lanes", group_id=group.group_id, lanes=group.lanes)
    cursor = max((row.cursor or 0 for row in lanes), default=0)
    passed = sum(offset <= cursor for offset, _ in ordered)
    if passed:
        tx.run("prune.passed", ids=[group.group_id], counts=[passed])

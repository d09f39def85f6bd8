"""Settle what was finished in the source: ranges of the import's groups, each claimed and done in one transaction.

The claim is the usual one, so that the horizon holds: an event that somebody else is appending meanwhile is not passed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.core import limits
from penstock.core.group import Group
from penstock.core.lease import LeaseRow, Settlement
from penstock.log import audit
from penstock.log.claim import look_around
from penstock.log.claim_lane import LaneClaim
from penstock.log.imports import record
from penstock.log.imports.record import Import
from penstock.log.settle import settle_in
from penstock.log.transact import look, transact
from penstock.stores.base import Store, Transaction
from penstock.stores.rows import ImportGroupRow, LaneRow


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the groups of an import are settled; `waits` if an open transaction that appends is in the way."""

    settled: int
    end: int
    done: bool
    waits: bool = False


def settle_next(store: Store, one: Import) -> Progress:
    """Settle the next stretch of the first group that is not complete; a complete group is resumed."""

    def work(tx: Transaction) -> Progress:
        known = record.locked(tx, one)
        waiting: list[ImportGroupRow] = [row for row in tx.rows("import.groups", id=one.id) if not row.done]
        if not waiting:
            record.save(tx, known, position=known.position, counts=known.counts, state=record.DONE, ended_at=tx.now())
            audit.record(tx, known.by, "import", detail={"import": known.id, **known.counts})
            return Progress(0, 0, done=True)
        return _settle_stretch(tx, known, waiting[0])

    return transact(store, work)


def progress(store: Store, one: Import) -> list[tuple[str, str]]:
    """Return stream and name of the groups that an import made."""
    return [(row.stream, row.group_name) for row in look(store, lambda tx: tx.rows("import.groups", id=one.id))]


def _settle_stretch(tx: Transaction, one: Import, row: ImportGroupRow) -> Progress:
    group, lanes = look_around(tx, row.stream, row.group_name)
    record.check_paused(group, one)
    reach = tx.one("import.reach", group_id=group.group_id)
    end = 0 if reach is None or reach.high is None else int(reach.high)
    low = row.settled_upto
    if low >= end:
        tx.run("import.drop_ranges", group_id=group.group_id)
        tx.run("import.group_settled", group_id=group.group_id, upto=low, done=True)
        tx.run("group.pause", group_id=group.group_id, paused=False, reason=None)
        audit.record_for(tx, one.by, "resume", group, None, {"reason": f"import {one.id} is complete"})
        return Progress(end, end, done=False)
    high = _stretch(tx, group, lanes, low, end)
    if high <= low:
        return Progress(low, end, done=False, waits=True)
    params = {"group_id": group.group_id, "stream": group.stream, "group_name": group.group_name}
    tx.run("import.rest_rows", low=low, high=high, now=tx.now(), **params)
    _finish(tx, group, high, one.by)
    tx.run("import.group_settled", group_id=group.group_id, upto=high, done=False)
    return Progress(high, end, done=False)


def _stretch(tx: Transaction, group: Group, lanes: Sequence[LaneRow], low: int, end: int) -> int:
    """Return up to where the next stretch goes: so many events at most, and never beyond the horizon."""
    horizon = tx.horizon(lanes[0].last)
    last = tx.one("import.stretch", stream=group.stream, low=low, high=end, most=limits.BATCH)
    return min(horizon, end if last is None else int(last.offset))


def _finish(tx: Transaction, group: Group, high: int, by: str) -> None:
    """Claim everything up to `high` that has no row, in every lane, and say that it is done.

    Order by key does not matter: what waits has a row, and what is finished has overtaken it long ago.
    """
    plain = replace(group, ordered=False)
    taken = True
    while taken:
        taken = False
        _, lanes = look_around(tx, group.stream, group.group_name)
        for lane in lanes:
            claim = LaneClaim(tx, plain, lane.looked_at, limits.BATCH, by, group.lease_seconds, upto=high)
            found = claim.take_next(lane)
            taken = taken or found is not None
            if isinstance(found, LeaseRow):
                settle_in(tx, found.id, found.token, Settlement())

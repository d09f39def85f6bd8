"""Find how far a claimed range goes, and which events it must leave out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from penstock.core import limits
from penstock.core.group import Group
from penstock.core.lanes import slice_of
from penstock.stores.base import Transaction
from penstock.stores.rows import LaneRow, RangeRow


@dataclass(frozen=True, slots=True)
class Range:
    """(low, high] of a lane: its members, its holes, and how many events were examined."""

    binding: int
    low: int
    high: int
    members: int
    holes: list[int]
    scanned: int
    stepped_into: list[int]  # holes that have just become rows
    found: str | None
    whole: bool


@dataclass(frozen=True, slots=True)
class Stretch:
    """Where to look for the events of a range, and how many to take."""

    group: Group
    lane: LaneRow
    binding: int
    low: int
    high: int
    most: int
    now: datetime


def find(tx: Transaction, where: Stretch, *, attempts: int, replay: int, because: Mapping[str, str | None]) -> Range:
    """Find the range from `low` on; its delayed and blocked events become rows of their own.

    `because` is the error with which a returned range came back, if any; the rows keep it. The range is first measured
    as if nothing had to be left out: only exceptions inside it matter, however many there are beyond it.
    """
    row, whole = _plainly(tx, where)
    if (where.lane.has_rows or where.lane.has_dated) and _odd(tx, where, row.high):
        row, whole = _carefully(tx, where), False
    new_rows = [*row.delayed, *row.blocked]
    if new_rows:
        group = where.group
        tx.run(
            "claim.step_over",
            group_id=group.group_id,
            stream=group.stream,
            group_name=group.group_name,
            delayed=row.delayed,
            offsets=new_rows,
            attempts=attempts,
            replays=replay,
            lived=group.lived(replay, where.low),
            now=where.now,
            **because,
        )
    return Range(where.binding, where.low, row.high, row.members, row.holes, row.scanned, new_rows, row.found, whole)


def _plainly(tx: Transaction, where: Stretch) -> tuple[RangeRow, bool]:
    group, low, high, most = where.group, where.low, where.high, where.most
    row: RangeRow | None
    if group.span(where.binding).everything:
        if group.lanes == 1:
            row = tx.one("claim.whole_range", stream=group.stream, low=low, high=high, most=most)
            assert row is not None
            return row, True
        row = tx.one("claim.lane_range", reach=_reach(where), scan=max(limits.SCAN, 2 * most), **_share(where))
        if row is not None:
            return row, True
    row = tx.one("claim.plain_range", scan=max(limits.SCAN_FILTERED, 2 * most), **_share(where), **_filter(where))
    assert row is not None
    return row, group.span(where.binding).everything


def _odd(tx: Transaction, where: Stretch, high: int) -> bool:
    """Return whether the range has anything to leave out; it rarely does."""
    row = tx.one("claim.exceptions", now=where.now, **_turn(where), **{**_share(where), "high": high})
    return row is not None and bool(row.any)


def _carefully(tx: Transaction, where: Stretch) -> RangeRow:
    """Measure a range with exceptions. This costs more per event and may end early, so examine few more than needed."""
    everything, most, lanes = where.group.span(where.binding).everything, where.most, where.group.lanes
    params = {"now": where.now, "holes": limits.HOLES_PER_LEASE, **_share(where), **_turn(where)}
    if everything and tx.finds_lanes:
        block, params = "claim.careful_lane", params | {"reach": _reach(where), "scan": limits.PASS_STRETCH}
    else:
        scan = min(max(limits.SCAN, 2 * most), max(limits.PASS_STRETCH, 2 * most * lanes))
        block, params = "claim.careful_range", params | {"scan": scan} | _filter(where)
    row: RangeRow | None = tx.one(block, **params)
    assert row is not None
    return row


def _reach(where: Stretch) -> int:
    """Return how far to examine a lane in the index alone."""
    return max(limits.SCAN, 4 * where.most * where.group.lanes)


def _share(where: Stretch) -> dict[str, object]:
    first, last = slice_of(where.lane.lane, where.group.lanes)
    return {
        "stream": where.group.stream,
        "low": where.low,
        "high": where.high,
        "most": where.most,
        "first_bucket": first,
        "last_bucket": last,
    }


def _filter(where: Stretch) -> dict[str, object]:
    span = where.group.span(where.binding)
    return {"binding": where.binding, "type_regex": span.type_regex, "headers": span.headers}


def _turn(where: Stretch) -> dict[str, object]:
    group = where.group
    return {"group_id": group.group_id, "ordered": group.ordered, "halts": group.on_dead == "halt"}

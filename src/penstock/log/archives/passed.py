"""What restored events are to a group: those that it had passed are finished, as they were before.

A lease says what is finished. Where the leases of an event are gone, a restore writes one for it: ended at once, with
nothing counted, since nothing was done.
"""

from __future__ import annotations

import secrets
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import orjson

from penstock.core import limits
from penstock.core.binding import Span, matches
from penstock.core.codec import decode_headers
from penstock.core.event import StoredEvent
from penstock.core.group import Group
from penstock.core.lanes import bucket_of, lane_of
from penstock.core.lease import LeaseOutcome, error_columns
from penstock.errors import InFlight
from penstock.log.claim_lane import TOKEN_BITS
from penstock.log.outcomes import count_wanted
from penstock.stores.base import Row, Transaction
from penstock.stores.rows import LaneRow

_BY = "restore"


@dataclass(slots=True)
class Sight:
    """A locked group, and where some events are that it might have seen."""

    group: Group
    lanes: Sequence[LaneRow]
    settled: set[int] = field(default_factory=set)  # offsets that a lease says are finished
    returned: list[Row] = field(default_factory=list)

    def cursor(self, lane: int) -> int:
        """How far a lane has got."""
        found = self.lanes[lane].cursor
        return int(self.group.starts[lane] if found is None else found)

    def passed(self, one: StoredEvent) -> Span | None:
        """Return the binding by which the group wanted an event that its lane has passed; None if there is none."""
        if one.offset <= self.group.floor or one.offset > self.cursor(lane_of(_bucket(one), self.group.lanes)):
            return None
        span = self.group.span_after(one.offset - 1)
        wanted = None if span.headers is None else orjson.loads(span.headers)
        has = decode_headers(one.event.headers) if wanted else None
        return span if matches(span.types, wanted, one.event.event_type, has) else None


def look(tx: Transaction, group: Group, lanes: Sequence[LaneRow], events: Sequence[StoredEvent]) -> Sight:
    """Look where a group is, before events are put back; `InFlight` if it works on a range that would contain them."""
    sight = Sight(group, lanes)
    offsets = [one.offset for one in events]
    where = {"group_id": group.group_id, "low": offsets[0] - 1, "high": offsets[-1]}
    for lease in tx.rows("restore.leases", **where):
        upto = lease.high if lease.outcome is None else min(lease.high, lease.upto)
        inside = [
            one.offset
            for one in events[bisect_right(offsets, lease.low) : bisect_right(offsets, upto)]
            if lane_of(_bucket(one), lease.lanes) == lease.lane and one.offset not in lease.holes
        ]
        if inside and lease.outcome is None:
            raise InFlight(f"The group {group.group_name!r} works on a range with the offset {inside[0]} in it.")
        sight.settled.update(inside)
    sight.returned = tx.rows("restore.returned", **where)
    return sight


def count_in(tx: Transaction, sight: Sight, put: Sequence[StoredEvent]) -> None:
    """Count events that were put back, and write leases for those that no lease says are finished."""
    group = sight.group
    seen = [(one, span) for one in put if (span := sight.passed(one)) is not None]
    if seen:
        tx.run("prune.passed", ids=[group.group_id], counts=[-len(seen)])
    waiting = {one.offset for one, _ in seen if any(_holds(returned, one) for returned in sight.returned)}
    for returned in sight.returned:
        members = count_wanted(tx, group, returned, returned.low, returned.high, without_rows=True)
        tx.run("restore.returned_members", id=returned.id, members=members)
    loose: dict[tuple[int, int], list[int]] = defaultdict(list)
    for one, span in seen:
        if one.offset not in sight.settled and one.offset not in waiting:
            loose[lane_of(_bucket(one), group.lanes), span.binding].append(one.offset)
    for (lane, binding), offsets in loose.items():
        for piece in _pieces(tx, group, lane, offsets):
            _write_lease(tx, sight, lane, binding, piece)


@dataclass(slots=True)
class _Piece:
    """A range of restored events, and what else is in it."""

    offsets: list[int] = field(default_factory=list)
    holes: list[int] = field(default_factory=list)


def _pieces(tx: Transaction, group: Group, lane: int, offsets: Sequence[int]) -> Iterator[_Piece]:
    """Yield ranges of these offsets, each with the holes for what else is in its lane."""
    where = {"stream": group.stream, "low": offsets[0] - 1, "high": offsets[-1]}
    others = [
        int(row.offset)
        for row in tx.rows("restore.others", restored=list(offsets), **where)
        if lane_of(int(row.bucket), group.lanes) == lane
    ]
    piece = _Piece()
    between: list[int] = []  # since the last of the offsets
    for offset, mine in sorted([*((one, True) for one in offsets), *((one, False) for one in others)]):
        if not mine:
            between.append(offset)
            continue
        if piece.offsets and len(piece.holes) + len(between) > limits.HOLES_PER_LEASE:
            yield piece
            piece = _Piece()
        elif piece.offsets:
            piece.holes += between
        piece.offsets.append(offset)
        between = []
    yield piece


def _write_lease(tx: Transaction, sight: Sight, lane: int, binding: int, piece: _Piece) -> None:
    group, now, high = sight.group, tx.now(), piece.offsets[-1]
    opened = tx.one(
        "lease.open",
        group_id=group.group_id,
        lane=lane,
        lanes=group.lanes,
        binding=binding,
        secret=secrets.randbits(TOKEN_BITS),
        claimed_by=_BY,
        now=now,
        expires_at=now + timedelta(seconds=group.lease_seconds),
        attempts=1,
        replay=group.rewinds,
        members=len(piece.offsets),
        low=piece.offsets[0] - 1,
        high=high,
        holes=piece.holes,
        offsets=None,
        fresh=False,
        total=None,
        open_before=sight.lanes[lane].open_ids,
        run=None,
    )
    assert opened is not None
    nothing = {"published": 0, "failed": 0, "dead": 0, "released": 0}
    tx.run(
        "lease.end",
        id=opened.id,
        outcome=LeaseOutcome.SETTLED,
        upto=high,
        digest=None,
        answer=[0, 0, 0, 0],
        now=now,
        **nothing,
        **error_columns(None),
    )


def _bucket(one: StoredEvent) -> int:
    return bucket_of(one.event.ordering_key, one.offset)


def _holds(returned: Row, one: StoredEvent) -> bool:
    return bool(returned.low < one.offset <= returned.high and lane_of(_bucket(one), returned.lanes) == returned.lane)

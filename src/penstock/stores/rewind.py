"""Rewind: put everything above a position back, as if the group had never been there."""

from __future__ import annotations

from datetime import datetime

from penstock.core.delivery import Reason
from penstock.core.lanes import slice_of
from penstock.core.lease import Outcome
from penstock.errors import Pruned
from penstock.stores import groups, settle
from penstock.stores.base import Transaction
from penstock.stores.groups import Group


def rewind(
    tx: Transaction,
    stream: str,
    group_name: str,
    to: str | int | datetime,
    *,
    reset_state: bool,
    dry_run: bool,
    by: str,
) -> int:
    """Ends all open leases and returns how many deliveries are to come again."""
    group = groups.locked(tx, stream, group_name)
    target = groups.position(tx, stream, to)
    pruned = tx.one("rewind.pruned", stream=stream)
    if pruned is not None and target < pruned.upto:
        raise Pruned(f"Events of {stream!r} up to offset {pruned.upto} were pruned; {target} lies before that.")
    now = tx.now()
    rows = tx.rows("claim.lanes", group_id=group.group_id, lanes=group.lanes)
    cursors = {row.lane: group.starts[row.lane] if row.cursor is None else row.cursor for row in rows}
    pieces = [piece for lane, cursor in cursors.items() for piece in _pieces(tx, group, lane, target, cursor)]
    count = sum(members for *_, members in pieces)
    if dry_run:
        return count
    _end_leases(tx, group, now)
    tx.run("rewind.log_rows", group_id=group.group_id, target=target, now=now)
    tx.run("rewind.remove_rows", group_id=group.group_id, target=target)
    tx.run("rewind.drop_returned", group_id=group.group_id, target=target)
    for piece in tx.rows("rewind.crossing", group_id=group.group_id, target=target):
        members = _count(tx, group, piece.lane, piece.binding, piece.low, target, without_rows=True)
        tx.run("rewind.trim_returned", id=piece.id, target=target, members=members)
    older = _count_all(tx, group, target, group.floor) if target < group.floor else 0
    tx.run("group.rewound", group_id=group.group_id, target=target, older=older)
    for lane, binding, low, high, members in pieces:
        tx.run(
            "returned.add",
            group_id=group.group_id,
            lane=lane,
            lanes=group.lanes,
            binding=binding,
            low=low,
            high=high,
            members=members,
            attempts=0,
            replay=group.rewinds + 1,
            available_at=now,
            reason=Reason.REWOUND,
            last_error=None,
        )
    if reset_state:
        tx.run("state.reset", group_id=group.group_id)
    groups.audit(tx, by, "rewind", group, count, {"to": target, "state": "reset" if reset_state else "keep"})
    return count


def _end_leases(tx: Transaction, group: Group, now: datetime) -> None:
    """What they hold comes back like a release; the part above the target is then swept with the rest."""
    for lease in tx.rows("rewind.open", group_id=group.group_id):
        settle.give_back(tx, lease, group, now, Reason.RELEASED)
        tx.run("lease.end", id=lease.id, outcome=Outcome.REWOUND, upto=lease.low, digest=None, answer=None, now=now)


def _pieces(tx: Transaction, group: Group, lane: int, target: int, cursor: int) -> list[tuple[int, int, int, int, int]]:
    """(target, cursor] of a lane, cut where one binding follows another."""
    pieces = []
    for span in group.spans:
        low, high = max(target, span.low, 0), min(cursor, span.high)
        if low < high:
            pieces.append((lane, span.binding, low, high, _count(tx, group, lane, span.binding, low, high)))
    return pieces


def _count_all(tx: Transaction, group: Group, low: int, high: int) -> int:
    """Events from before the group's start that it wants now."""
    return sum(_count(tx, group, lane, group.spans[0].binding, low, high) for lane in range(group.lanes))


def _count(
    tx: Transaction, group: Group, lane: int, binding: int, low: int, high: int, *, without_rows: bool = False
) -> int:
    first, last = slice_of(lane, group.lanes)
    span = group.span(binding)
    row = tx.one(
        "settle.count_tail",
        stream=group.stream,
        low=low,
        high=high,
        without_rows_of=group.group_id if without_rows else None,
        holes=[],
        first_bucket=first,
        last_bucket=last,
        binding=binding,
        type_regex=span.type_regex,
        headers=span.headers,
    )
    return 0 if row is None else int(row.members)


def prune(tx: Transaction, stream: str, upto: int, by: str) -> int:
    """Remove events that every group has finished with; stops below the first that any still needs."""
    for group in groups.every(tx, stream):
        groups.locked(tx, group.stream, group.group_name)
        needed = tx.one("prune.needed", group_id=group.group_id, lanes=group.lanes)
        if needed is not None and needed.offset is not None:
            upto = min(upto, needed.offset)
    row = tx.one("prune.remove", stream=stream, upto=upto)
    removed = 0 if row is None else int(row.removed)
    tx.run("audit.add", by=by, action="prune", stream=stream, group_name=None, count=removed, detail="{}", now=tx.now())
    return removed

"""Rewind: deliver everything above a position again, as if the group had never seen it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from penstock.core.delivery import Reason
from penstock.core.group import Group, Position
from penstock.core.lease import LeaseOutcome, error_columns
from penstock.errors import InvalidInput, Pruned
from penstock.log import audit, checks, groups, positions, stats
from penstock.log.lease_end import give_back_all
from penstock.log.outcomes import count_wanted, give_back
from penstock.log.selection import Moved
from penstock.log.transact import transact
from penstock.stores.base import Store, Transaction
from penstock.stores.rows import CursorRow, EndedRow, LeaseRecord, ReturnedRow


def rewind(store: Store, stream: str, group: str, to: Position, *, state: str, dry_run: bool, by: str | None) -> Moved:
    """End all open leases and deliver everything above a position again; `state` is "keep" or "reset"."""
    reset = check_state(state) == "reset"
    target, author = checks.position(to, "to"), checks.author(by)

    def work(tx: Transaction) -> int:
        known = groups.locked(tx, stream, group)
        above = aim(tx, known, target)
        return count(tx, known, above) if dry_run else apply(tx, known, above, reset_state=reset, by=author)

    return Moved(transact(store, work), dry_run)


def check_state(state: str) -> str:
    """Check what becomes of keyed state: "keep" or "reset"."""
    if state not in ("keep", "reset"):
        raise InvalidInput(f'state is "keep" or "reset", not {state!r}.')
    return state


def aim(tx: Transaction, group: Group, to: Position) -> int:
    """Return the offset above which a rewind delivers again; `Pruned` if events above it are gone."""
    target = positions.offset_of(tx, group.stream, to)
    pruned = tx.one("rewind.pruned", stream=group.stream)
    if pruned is not None and target < pruned.upto:
        said = f"Events of {group.stream!r} up to offset {pruned.upto} were pruned, and {target} is below that."
        if tx.one("archive.covered", stream=group.stream) is not None:
            said += f" They are archived: `penstock restore {group.stream}` puts them back."
        raise Pruned(said)
    return target


def count(tx: Transaction, group: Group, target: int) -> int:
    """Count what a rewind would deliver again."""
    rows: list[CursorRow] = tx.rows("claim.lanes", group_id=group.group_id, lanes=group.lanes)
    known = stats.passed_above(tx, group, rows, target)
    if known is not None:
        return known
    return sum(count_wanted(tx, group, piece, piece.low, piece.high) for piece in _all_pieces(group, rows, target))


def apply(tx: Transaction, group: Group, target: int, *, reset_state: bool, by: str) -> int:
    """Rewind a locked group; returns how many events are delivered again."""
    now = tx.now()
    rows: list[CursorRow] = tx.rows("claim.lanes", group_id=group.group_id, lanes=group.lanes)
    pieces = _all_pieces(group, rows, target)
    members = [count_wanted(tx, group, piece, piece.low, piece.high) for piece in pieces]
    total = sum(members)
    _end_leases(tx, group, now)
    tx.run("cancel.forget", group_id=group.group_id, after=target)
    ended = _ended(tx, group, target)
    number = max(group.rewinds, ended.replays) + 1  # above every ended life, so that no idempotency key is used twice
    tx.run("rewind.log_rows", group_id=group.group_id, target=target, by=by, replay=number, now=now)
    tx.run("rewind.drop_returned", group_id=group.group_id, target=target)
    crossing: list[ReturnedRow] = tx.rows("rewind.crossing", group_id=group.group_id, target=target)
    for returned in crossing:
        left = count_wanted(tx, group, returned, returned.low, target, without_rows=True)
        tx.run("rewind.trim_returned", id=returned.id, target=target, members=left)
    tx.run(
        "group.rewound",
        group_id=group.group_id,
        rewinds=number,
        rewound_upto=max(group.rewound_upto, ended.upto),
        target=target,
        older=_count_older(tx, group, target),
    )
    for piece, again in zip(pieces, members, strict=True):
        where = {"group_id": group.group_id, "replay": number, **asdict(piece)}
        tx.run("rewind.log_range", by=by, now=now, **where)
        tx.run(
            "returned.add",
            members=again,
            attempts=0,
            available_at=now,
            reason=Reason.REWOUND,
            returned_at=now,
            **error_columns(None),
            **where,
        )
    tx.run("rewind.remove_rows", group_id=group.group_id, target=target)  # the returned ranges cover them
    if reset_state:
        tx.run("state.reset", group_id=group.group_id)
    audit.record_for(tx, by, "rewind", group, total, {"to": target, "state": "reset" if reset_state else "keep"})
    return total


def _end_leases(tx: Transaction, group: Group, now: datetime) -> None:
    """Release all open leases; the part above the target is then removed with the rest."""
    leases: list[LeaseRecord] = tx.rows("rewind.open", group_id=group.group_id)
    for lease in leases:
        give_back(tx, lease, group, now, Reason.RELEASED)
        give_back_all(tx, lease, LeaseOutcome.REWOUND, now)


def _ended(tx: Transaction, group: Group, target: int) -> EndedRow:
    """Return the highest offset and the highest replay number of the rows whose lives end."""
    row: EndedRow | None = tx.one("rewind.ended", group_id=group.group_id, target=target)
    assert row is not None
    return row


def _all_pieces(group: Group, rows: Sequence[CursorRow], target: int) -> list[_Piece]:
    """Return what of every lane is delivered again."""
    cursors = {row.lane: group.starts[row.lane] if row.cursor is None else row.cursor for row in rows}
    return [piece for lane, cursor in cursors.items() for piece in _pieces(group, lane, target, cursor)]


def _pieces(group: Group, lane: int, target: int, cursor: int) -> list[_Piece]:
    """Return (target, cursor] of a lane, split at the changes of its binding."""
    cuts = [(span.binding, max(target, span.low, 0), min(cursor, span.high)) for span in group.spans]
    return [_Piece(lane, group.lanes, binding, low, high) for binding, low, high in cuts if low < high]


def _count_older(tx: Transaction, group: Group, target: int) -> int:
    """Count the events from before the group's start that a rewind makes it receive."""
    binding = group.spans[0].binding
    lanes = [_Piece(lane, group.lanes, binding, target, group.floor) for lane in range(group.lanes)]
    return sum(count_wanted(tx, group, piece, piece.low, piece.high) for piece in lanes) if target < group.floor else 0


@dataclass(frozen=True, slots=True)
class _Piece:
    """A range of a lane that is delivered again."""

    lane: int
    lanes: int
    binding: int
    low: int
    high: int

"""One transaction of an import: events, what the source knew of their deliveries, and how far the source was read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from penstock.core import codec, fingerprint
from penstock.core.delivery import Reason, State
from penstock.core.group import Group
from penstock.core.imported import Taken, Was
from penstock.core.job import GROUP, PREFIX
from penstock.core.lanes import lane_of
from penstock.core.lease import Failure, LeaseOutcome, Settled, error_columns
from penstock.errors import ImportConflict
from penstock.log.claim import look_around
from penstock.log.claim_lane import LaneClaim
from penstock.log.imports import record
from penstock.log.imports.record import Import
from penstock.log.jobs.types import ensure_group
from penstock.log.lease_end import end_lease
from penstock.log.outcomes import Fate, Given, remember_kinds, write_rows
from penstock.log.transact import transact
from penstock.stores.base import Store, Transaction
from penstock.stores.rows import LaneRow, LeaseRecord, PlacedRow

MOST_ATTEMPTS = 1_000_000_000  # what a source counts may be anything; more must still fit behind it


@dataclass(frozen=True, slots=True)
class Stored:
    """What a batch stored: the import behind it, and how many events the log had already."""

    after: Import
    known: int


@dataclass(slots=True)
class _Due:
    """A row to claim."""

    offset: int
    part: int | None = None


def store_batch(
    store: Store, one: Import, items: Sequence[Taken], position: Any, counts: Mapping[str, Any], *, last: bool
) -> Stored:
    """Store events that follow each other in the source; `position` is that of the last of them.

    An event whose id the stream has already is the same event: it is not stored again, and its states are taken. Jobs
    are not ours alone: the states of those that are known stay as they are. So do groups that are complete: an import
    begins again if one of several is deleted.
    """

    def work(tx: Transaction) -> Stored:
        known = record.locked(tx, one)
        before, placed = _append(tx, items)
        complete = {(row.stream, row.group_name) for row in tx.rows("import.groups", id=known.id) if row.done}
        for (stream, group), states in _by_group(items).items():
            left = set()
            if (stream, group) in complete:
                continue
            if stream.startswith(PREFIX):
                ensure_group(tx, stream)
                left = before
            pairs = [(placed[event_id], was) for event_id, was in states.items() if event_id not in left]
            _take_states(tx, known, stream, group, pairs, before)
        again = len(items) - len(placed) + len(before)
        total = {**counts, "known": counts.get("known", 0) + again}
        state = record.SETTLING if last else record.COPYING
        record.save(tx, known, position=position, counts=total, state=state)
        tx.wake()
        return Stored(replace(known, position=position, counts=total, state=state), again)

    return transact(store, work)


def _append(tx: Transaction, items: Sequence[Taken]) -> tuple[set[Any], dict[Any, PlacedRow]]:
    """Append what is new; return the ids that were known before, and the place of every event."""
    events = {item.event.event_id: item.event for item in items}
    found = _places(tx, events)
    for event_id, row in found.items():
        if row.stream != events[event_id].stream:
            raise ImportConflict(f"Event {event_id} is in the stream {row.stream!r} already.")
    new = [event for event_id, event in events.items() if event_id not in found]
    if new:
        tx.append(new, unique=False)
    return {*found}, found | _places(tx, [event.event_id for event in new])


def _places(tx: Transaction, ids: Iterable[Any]) -> dict[Any, PlacedRow]:
    listed = list(ids)
    rows: list[PlacedRow] = tx.rows("import.known", ids=listed) if listed else []
    return {row.event_id: row for row in rows}


def _by_group(items: Sequence[Taken]) -> dict[tuple[str, str], dict[Any, Was]]:
    """States by stream and group; of an entry that a source has twice the first one counts."""
    found: dict[tuple[str, str], dict[Any, Was]] = defaultdict(dict)
    for item in items:
        for group, was in item.states.items():
            found[item.event.stream, group].setdefault(item.event.event_id, was)
    return found


# --- states -----------------------------------------------------------------------------------------------------------


def _take_states(
    tx: Transaction, one: Import, stream: str, group_name: str, states: list[tuple[PlacedRow, Was]], before: set[Any]
) -> None:
    if not states:
        return
    group, lanes = look_around(tx, stream, group_name)
    if group_name != GROUP or not group.of_jobs:
        record.check_paused(group, one)
        states = [pair for pair in states if not _taken_before(pair[0], before, group)]
    offsets = [row.offset for row, _ in states]
    has_row = {row.offset for row in tx.rows("import.with_rows", group_id=group.group_id, offsets=offsets)}
    open_states = [(row, was) for row, was in states if row.offset not in has_row]
    _finished(tx, group, sorted(row.offset for row, was in open_states if was.state is State.PUBLISHED))
    now = tx.now()
    _waiting(tx, group, [pair for pair in open_states if _needs_row(*pair, group)], now, one.by)
    _dead(tx, group, lanes, [pair for pair in open_states if pair[1].state is State.DEAD], now, one.by)


def _taken_before(row: PlacedRow, before: set[Any], group: Group) -> bool:
    """Whether an earlier batch had this event: an id that a source has twice keeps the state of its first entry."""
    return row.event_id in before and row.created_at > group.created_at


def _needs_row(row: PlacedRow, was: Was, group: Group) -> bool:
    """Whether a waiting delivery has more to say than its event does, or lies where the group's ranges never come."""
    if was.state is not State.PENDING:
        return False
    return was.attempts > 0 or bool(was.error) or was.available_at is not None or row.offset <= group.floor


def _finished(tx: Transaction, group: Group, offsets: Sequence[int]) -> None:
    """Remember finished events as ranges without a gap: no event of anybody else can ever be in one."""
    ranges: list[dict[str, int]] = []
    for offset in offsets:
        if ranges and ranges[-1]["high"] == offset - 1:
            ranges[-1]["high"] = offset
        else:
            ranges.append({"low": offset - 1, "high": offset})
    if ranges and tx.run("import.extend_range", group_id=group.group_id, **ranges[0]):
        del ranges[0]
    if ranges:
        tx.run("import.add_ranges", group_id=group.group_id, rows=ranges)


def _waiting(tx: Transaction, group: Group, pairs: list[tuple[PlacedRow, Was]], now: datetime, by: str) -> None:
    """Give waiting deliveries their rows; what was tried before belongs to an earlier life, so they may try again."""
    failures = {row.offset: _failure(was) for row, was in pairs}
    _make_rows(tx, group, pairs, failures, now, earlier=True)
    tried = [row.offset for row, was in pairs if was.attempts > 0 or was.error]
    if tried:
        tx.run("import.log_rows", group_id=group.group_id, offsets=tried, by=by, now=now)
    remember_kinds(tx, [one for one in failures.values() if one is not None], now)


def _dead(
    tx: Transaction, group: Group, lanes: Sequence[LaneRow], pairs: list[tuple[PlacedRow, Was]], now: datetime, by: str
) -> None:
    """Make deliveries DEAD by the way of the law: a row that waits, a lease that claims it, and its outcome."""
    if not pairs:
        return
    failures = {row.offset: _failure(was) or _unnamed() for row, was in pairs}
    _make_rows(tx, group, pairs, failures, now, earlier=False)
    by_lane: dict[int, list[tuple[PlacedRow, Was]]] = defaultdict(list)
    for pair in pairs:
        by_lane[lane_of(pair[0].bucket, group.lanes)].append(pair)
    claim = LaneClaim(tx, group, now, len(pairs), by, group.lease_seconds)
    for lane in lanes:
        members = by_lane[lane.lane]
        if not members:
            continue
        lease = claim.lease_rows(lane, [_Due(row.offset) for row, _ in members])
        held: LeaseRecord | None = tx.one("lease.lock", id=lease.id)
        assert held is not None, "it has just been opened"
        write_rows(tx, held, group, [_buried(row, was, failures[row.offset], now) for row, was in members], now)
        end_lease(tx, held, LeaseOutcome.SETTLED, Settled(0, 0, len(members), 0), now, upto=None)
    remember_kinds(tx, failures.values(), now)


def _buried(row: PlacedRow, was: Was, why: Failure, now: datetime) -> Given:
    kind = why.error_type, why.fingerprint
    fate = Fate(State.DEAD, Reason.IMPORTED, 1, why.message, why.code, "dead", was.dead_at or now, None, *kind)
    return Given(row.offset, now, fate)


def _make_rows(
    tx: Transaction,
    group: Group,
    pairs: list[tuple[PlacedRow, Was]],
    failures: Mapping[int, Failure | None],
    now: datetime,
    *,
    earlier: bool,
) -> None:
    """Insert rows; attempts belong to an earlier life, or to this one, whose last claim follows."""
    rows = [
        {
            "offset": row.offset,
            "attempts": 0 if earlier else max(0, min(was.attempts, MOST_ATTEMPTS) - 1),
            "earlier_attempts": min(was.attempts, MOST_ATTEMPTS) if earlier else 0,
            "available_at": was.available_at,
            **error_columns(failures[row.offset]),
        }
        for row, was in pairs
    ]
    if rows:
        tx.run(
            "import.make_rows",
            group_id=group.group_id,
            stream=group.stream,
            group_name=group.group_name,
            rows=rows,
            now=now,
        )


def _failure(was: Was) -> Failure | None:
    return fingerprint.of_text(Reason.IMPORTED, codec.error_text(was.error)) if was.error else None


def _unnamed() -> Failure:
    return fingerprint.of_text(Reason.IMPORTED, "The source does not say why.")

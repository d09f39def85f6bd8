"""The life of an event: how every group of its stream sees it, what happened to it there, and who did it."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import orjson

from penstock.core.batch import Event, Events
from penstock.core.delivery import State
from penstock.core.moments import of_micros
from penstock.errors import UnknownEvent
from penstock.log import audit_pages, checks
from penstock.log.deliveries import Attempt
from penstock.log.transact import look
from penstock.stores.base import Row, Store, Transaction

BEFORE: Final = 1_000  # events before one that waits, which are counted at most in a group …
_BEFORE_ALL: Final = 4_000  # … and in all groups that wait
NOTED: Final = 100  # rows of the audit of a group, the newest, among which reasons are looked for
_NEAR: Final = timedelta(seconds=30)  # a line of the history and its row of the audit are of one transaction
_BY_PEOPLE: Final = {  # what happened to a delivery, and how the audit calls it
    "redriven": "redrive",
    "replayed": "replay",
    "rewound": "rewind",
    "killed": "kill",
    "rescheduled": "reschedule",
    "skipped": "skip",
    "purged": "purge",
    "mended": "mend",
}


@dataclass(frozen=True, slots=True)
class HeldBy:
    """A lease that has or had the event."""

    id: int
    lane: int
    lanes: int
    claimed_by: str
    claimed_at: datetime
    expires_at: datetime
    heartbeat_at: datetime | None
    members: int
    ranged: bool  # a range of the log, not a list of rows
    outcome: str | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class Done:
    """What somebody did to the event, with its row of the audit, if that is known."""

    group: str
    at: datetime
    what: str  # redriven, killed, …
    by: str | None
    count: int | None = None  # deliveries that were moved together
    reason: str | None = None
    new_event_id: str | None = None  # that took its place, if it was mended


@dataclass(frozen=True, slots=True)
class GroupLife:
    """The event as one group sees it, and everything that happened to it there, oldest first."""

    group: str
    state: State
    attempts: int
    failures: int
    total_attempts: int
    available_at: datetime | None
    claimed_at: datetime | None
    claimed_by: str | None
    last_error: str | None
    error_code: str | None
    error_type: str | None
    fingerprint: str | None
    reason: str | None
    published_at: datetime | None
    dead_at: datetime | None
    lease: int | None
    operation: int | None  # that moved it last
    before: int | None  # events before it in its lane, while it waits beyond the cursor
    before_capped: bool  # there may be more
    history: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True)
class Life:
    """An event and its life in every group that wants it."""

    event: Event
    groups: tuple[GroupLife, ...]
    leases: Mapping[int, HeldBy]
    done: tuple[Done, ...]


def stream_of(store: Store, which: Any) -> tuple[str, int]:
    """Return the stream and the offset of an event, by its id or its offset; `UnknownEvent` if it is not there."""
    known, offset = checks.event_of(which)
    row = look(store, lambda tx: tx.one("life.find", event_id=known, offset=offset))
    if row is None:
        raise UnknownEvent(f"There is no event {which}.")
    return str(row.stream), int(row.offset)


def pruned(store: Store) -> dict[str, int]:
    """Return up to which offset each stream was pruned."""
    return {row.stream: int(row.upto) for row in look(store, lambda tx: tx.rows("life.pruned"))}


def life(store: Store, stream: str, which: Any) -> Life:
    """Return an event's life; its cost follows the groups of its stream, not the length of the log."""
    known, offset = checks.event_of(which)

    def work(tx: Transaction) -> tuple[int, tuple[GroupLife, ...], dict[int, HeldBy], tuple[Done, ...]]:
        found = tx.one("inspect.event", stream=stream, event_id=known, offset=offset)
        if found is None:
            raise UnknownEvent(f"There is no event {which} on {stream!r}.")
        at = {"stream": stream, "offset": found.offset}
        rows = tx.rows("life.deliveries", **at)
        lines: dict[str, list[Attempt]] = defaultdict(list)
        for group, *line in tx.rows("life.history", **at):
            lines[group].append(Attempt(*line))
        before = _before(tx, rows, stream, found)
        groups = tuple(_group(row, lines[row.group_name], before) for row in rows)
        return found.offset, groups, _leases(tx, rows, lines), _done(tx, stream, lines)

    place, groups, leases, done = look(store, work)
    return Life(Events(store.read_events(stream, place - 1, place, 1), stream, None)[0], groups, leases, done)


def _before(tx: Transaction, rows: Sequence[Row], stream: str, event: Row) -> dict[int, tuple[int, bool]]:
    """Count what is before the event in its lane, in groups that have not got there yet, and say if that is capped."""
    waiting = [row.group_id for row in rows if row.state == State.PENDING and not row.has_row and not row.attempts]
    if not waiting:
        return {}
    most = min(BEFORE, _BEFORE_ALL // len(waiting))
    found = tx.rows("life.before", ids=waiting, stream=stream, offset=event.offset, bucket=event.bucket, most=most)
    return {row.group_id: (int(row.before), int(row.looked) >= most) for row in found}


def _group(row: Row, history: Sequence[Attempt], before: Mapping[int, tuple[int, bool]]) -> GroupLife:
    counted: tuple[int | None, bool] = before.get(row.group_id, (None, False))
    return GroupLife(
        row.group_name,
        State(row.state),
        row.attempts,
        row.failures,
        row.total_attempts,
        row.available_at,
        row.claimed_at,
        row.claimed_by,
        row.last_error,
        row.error_code,
        row.error_type,
        row.fingerprint,
        row.reason,
        row.published_at,
        row.dead_at,
        row.lease,
        row.operation,
        counted[0],
        counted[1],
        tuple(history),
    )


def _leases(tx: Transaction, rows: Iterable[Row], lines: Mapping[str, Sequence[Attempt]]) -> dict[int, HeldBy]:
    ids = {line.lease for history in lines.values() for line in history} | {row.lease for row in rows}
    named = sorted(one for one in ids if one is not None)
    if not named:
        return {}
    return {
        row.id: HeldBy(
            row.id,
            row.lane,
            row.lanes,
            row.claimed_by,
            row.claimed_at,
            row.expires_at,
            row.heartbeat_at,
            row.members,
            bool(row.ranged),
            row.outcome,
            row.ended_at,
        )
        for row in tx.rows("life.leases", ids=named)
    }


def _done(tx: Transaction, stream: str, lines: Mapping[str, Sequence[Attempt]]) -> tuple[Done, ...]:
    """Return what people did, the newest first."""
    found = sorted(
        ((line, group) for group, history in lines.items() for line in history if line.outcome in _BY_PEOPLE),
        key=lambda one: one[0].at,
        reverse=True,
    )
    noted = {
        group: tx.rows("audit.page", **audit_pages.page_of(stream, group, None, NOTED))
        for group in dict.fromkeys(group for _, group in found)
    }
    return tuple(Done(group, line.at, line.outcome, line.by, *_audited(noted[group], line)) for line, group in found)


def _audited(rows: Sequence[Row], line: Attempt) -> tuple[Any, ...]:
    """Return how many were moved together, and why, if this is among the newest that was done to the group."""
    action, until = _BY_PEOPLE[line.outcome], line.at + _NEAR
    for row in reversed(rows):
        if row.action == action and row.by == line.by and line.at <= row.happened_at < until:
            detail = orjson.loads(row.detail or "{}")
            return row.count, detail.get("reason"), detail.get("new_event_id")
    return ()


def id_time(event_id: uuid.UUID) -> datetime | None:
    """Return when a UUIDv7 was made, as it says itself; None for other ids.

    >>> id_time(uuid.UUID("0198f2b4-1111-7abc-8def-0123456789ab")).isoformat()
    '2025-08-28T20:23:45.297000+00:00'
    >>> id_time(uuid.uuid4())
    """
    if event_id.version != 7:
        return None
    return of_micros((event_id.int >> 80) * 1_000)

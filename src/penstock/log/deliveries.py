"""Inspect deliveries and their history; nothing is changed."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from penstock.core import codec
from penstock.core.delivery import State
from penstock.core.group import Group
from penstock.errors import UnknownEvent
from penstock.log import checks, groups, positions
from penstock.log.selection import Selection
from penstock.log.transact import look
from penstock.stores.base import Row, Store, Transaction

_WINDOW = 250  # offsets that are examined first
_WIDEST = 100_000


@dataclass(frozen=True, slots=True)
class Attempt:
    """One transition of a delivery: an attempt with its outcome, or an operator's action."""

    attempt: int
    failures: int
    replays: int
    outcome: str
    error: str | None
    error_code: str | None
    claimed_by: str | None
    claimed_at: datetime | None
    ended_at: datetime | None
    lease: int | None
    at: datetime
    by: str | None
    error_type: str | None
    fingerprint: str | None
    traceback: str | None


@dataclass(frozen=True, slots=True)
class DeliveryRecord:
    """One event as seen by one group: the event's fields and the delivery's."""

    stream: str
    group: str
    offset: int
    event_id: uuid.UUID
    event_type: str
    state: State
    attempts: int
    failures: int
    available_at: datetime | None
    claimed_at: datetime | None
    claimed_by: str | None
    last_error: str | None
    error_code: str | None
    reason: str | None
    published_at: datetime | None
    dead_at: datetime | None
    updated_at: datetime | None
    total_attempts: int
    error_type: str | None
    fingerprint: str | None
    payload: bytes
    content_type: str
    headers: dict[str, str]
    metadata: dict[str, Any]
    partition_key: str | None
    ordering_key: str | None
    created_at: datetime
    history: tuple[Attempt, ...] = ()

    def json(self) -> Any:
        """Decode the payload as JSON."""
        return orjson.loads(self.payload)


def deliveries(
    store: Store,
    stream: str,
    group: str,
    which: Selection,
    *,
    state: str | None,
    after: int,
    limit: int,
    hidden: bool = False,
) -> list[DeliveryRecord]:
    """Return deliveries in offset order; pass the last offset as `after` for the next page."""
    wanted = None if state is None else checks.state_of(state)
    checks.count(after, "after")
    checks.count(limit, "limit")
    return look(store, lambda tx: page(tx, stream, group, which, state=wanted, after=after, limit=limit, hidden=hidden))


def page(
    tx: Transaction,
    stream: str,
    group_name: str,
    which: Selection,
    *,
    state: State | None,
    after: int,
    limit: int,
    hidden: bool = False,
) -> list[DeliveryRecord]:
    """Return one page of deliveries, in the caller's transaction.

    Of dead letters those that were purged or mended only if they are named, or with `hidden`.
    """
    group = groups.get(tx, stream, group_name)
    begin, end = positions.between(tx, stream, which.since, which.until)
    after = max(after, begin)
    found: list[DeliveryRecord] = []
    hide = state is State.DEAD and which.event_ids is None and not hidden
    window = end if which.event_ids is not None else max(_WINDOW, 4 * limit)
    # A page must not sort a backlog: examine windows, each twice as wide, and skip those that cannot match.
    while len(found) < limit and (after := _skip(tx, group, which.event_type, state, after, end)) < end:
        rows = tx.rows(
            "inspect.deliveries",
            group_id=group.group_id,
            stream=stream,
            state=state,
            after=after,
            upto=after + window,
            limit=limit - len(found),
            hide=hide,
            **which.params(),
        )
        found += [_record(row) for row in rows]
        after, window = after + window, min(2 * window, _WIDEST)
    return found


def _skip(tx: Transaction, group: Group, event_type: str | None, state: State | None, after: int, end: int) -> int:
    """Return an offset at or above `after` with nothing of this state or type in between."""
    if after >= end:
        return end
    if state is not None and state is not State.PUBLISHED:
        row = tx.one("inspect.next", group_id=group.group_id, state=state, after=after)
        after = end if row is None or row.offset is None else int(row.offset) - 1
    if event_type is not None and after < end:
        row = tx.one("inspect.type_from", stream=group.stream, event_type=event_type, after=after)
        after = after if row is None else max(after, int(row.upto))
    return after


def _record(row: Row, history: Sequence[Attempt] = ()) -> DeliveryRecord:
    return DeliveryRecord(
        row.stream,
        row.group_name,
        row.offset,
        row.event_id,
        row.event_type,
        State(row.state),
        row.attempts,
        row.failures,
        row.available_at,
        row.claimed_at,
        row.claimed_by,
        row.last_error,
        row.error_code,
        row.reason,
        row.published_at,
        row.dead_at,
        row.updated_at,
        row.total_attempts,
        row.error_type,
        row.fingerprint,
        bytes(row.payload),
        row.content_type,
        codec.decode_headers(row.headers),
        codec.decode_object(row.metadata),
        row.partition_key,
        row.ordering_key,
        row.created_at,
        tuple(history),
    )


def delivery(store: Store, stream: str, group: str, event_id: Any) -> DeliveryRecord:
    """Return one delivery with its attempt history; the event by its id or its offset."""
    known, offset = checks.event_of(event_id)
    found = look(store, lambda tx: _delivery(tx, stream, group, known, offset))
    if found is None:
        raise UnknownEvent(f"The group {group!r} on {stream!r} has no delivery of {event_id}.")
    return found


def _delivery(
    tx: Transaction, stream: str, group_name: str, event_id: uuid.UUID | None, offset: int | None
) -> DeliveryRecord | None:
    group = groups.get(tx, stream, group_name)
    event = tx.one("inspect.event", stream=stream, event_id=event_id, offset=offset)
    if event is None:
        return None
    which = Selection(event_ids=[event.event_id]).params()
    at = event.offset
    one = {"group_id": group.group_id, "stream": stream, "state": None, "after": at - 1, "upto": at}
    rows = tx.rows("inspect.deliveries", limit=1, hide=False, **one, **which)
    if not rows:
        return None
    history = tx.rows("inspect.history", group_id=group.group_id, offset=event.offset)
    return _record(rows[0], [Attempt(*row) for row in history])

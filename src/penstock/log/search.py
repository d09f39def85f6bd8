"""Search: an event by its id or offset, the newest events of a key, the newest dead letters with an error."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from penstock.core.event import check_text, parse_event_id
from penstock.errors import PenstockError
from penstock.log import newest_events
from penstock.log.transact import look
from penstock.stores.base import Store, Transaction

LOOK: Final = 2_000  # events of a stream, and dead letters of a group, that are looked at
MOST: Final = 20  # hits of a kind
_OFFSET_DIGITS: Final = 18


@dataclass(frozen=True, slots=True)
class EventHit:
    """An event that was found."""

    stream: str
    offset: int
    event_id: uuid.UUID
    event_type: str
    ordering_key: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ErrorHit:
    """A dead letter that was found."""

    stream: str
    group: str
    offset: int
    event_id: uuid.UUID
    event_type: str
    error_code: str | None
    last_error: str | None
    dead_at: datetime


@dataclass(frozen=True, slots=True)
class Found:
    """What a text was found in; `exact` is the event with this id or offset."""

    exact: EventHit | None
    names: tuple[tuple[str, str | None], ...]  # streams, and groups of streams
    events: tuple[EventHit, ...]
    errors: tuple[ErrorHit, ...]


def search(store: Store, text: str, reads: Callable[[str], bool]) -> Found:
    """Look for a text in the streams that may be read. Every look is bounded: among the newest `LOOK` of each."""
    wanted = (check_text(text, "text") or "").strip()
    return look(store, lambda tx: _search(tx, wanted, reads)) if wanted else Found(None, (), (), ())


def _search(tx: Transaction, wanted: str, reads: Callable[[str], bool]) -> Found:
    exact = _exact(tx, wanted, reads)
    groups = [row for row in tx.rows("group.find", stream=None, group_name=None, lease=None) if reads(row.stream)]
    streams = [row.stream for row in tx.rows("inspect.streams") if reads(row.stream)]
    text = wanted.lower()
    names: list[tuple[str, str | None]] = [(one, None) for one in streams if text in one.lower()]
    names += [(row.stream, row.group_name) for row in groups if text in f"{row.stream}/{row.group_name}".lower()]
    events: list[EventHit] = []
    horizon = tx.horizon()
    for stream in streams:
        if len(events) < MOST:
            low, _ = newest_events.floor(tx, stream, horizon, LOOK)
            left = {"key": wanted, "look": LOOK, "low": low, "limit": MOST - len(events)}
            events += [EventHit(*row) for row in tx.rows("search.keys", stream=stream, **left)]
    errors: list[ErrorHit] = []
    for row in groups:
        if len(errors) < MOST:
            where = {"stream": row.stream, "group_name": row.group_name, "error": wanted, "look": LOOK}
            errors += [ErrorHit(*hit) for hit in tx.rows("search.errors", **where, limit=MOST - len(errors))]
    return Found(exact, tuple(names[:MOST]), tuple(events), tuple(errors))


def _exact(tx: Transaction, wanted: str, reads: Callable[[str], bool]) -> EventHit | None:
    digits = wanted.removeprefix("#").replace(",", "")
    offset = int(digits) if digits.isascii() and digits.isdecimal() and len(digits) <= _OFFSET_DIGITS else None
    known: uuid.UUID | None = None
    if offset is None:
        try:
            known = parse_event_id(wanted)
        except PenstockError:
            return None
    rows = tx.rows("search.event", event_id=known, offset=offset)
    return next((EventHit(*row) for row in rows if reads(row.stream)), None)

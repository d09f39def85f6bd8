"""Read events without a group."""

from __future__ import annotations

from typing import Any

from penstock.core.batch import Event, Events
from penstock.core.event import check_name
from penstock.core.group import Position
from penstock.errors import UnknownEvent
from penstock.log import checks, positions
from penstock.log.transact import look
from penstock.stores.base import Store


def read(store: Store, stream: str, *, after: int, limit: int) -> list[Event]:
    """Return events in offset order, up to the horizon: nothing can still appear between them."""
    check_name(stream, "stream")
    horizon = look(store, lambda tx: tx.horizon())
    found = store.read_events(stream, checks.count(after, "after"), horizon, checks.count(limit, "limit"))
    return list(Events(found, stream, None))


def event(store: Store, stream: str, event_id: Any) -> Event:
    """Return one event by its id or its offset."""
    known, offset = checks.event_of(event_id)
    row = look(store, lambda tx: tx.one("inspect.event", stream=stream, event_id=known, offset=offset))
    if row is None:
        raise UnknownEvent(f"There is no event {event_id} on {stream!r}.")
    return Events(store.read_events(stream, row.offset - 1, row.offset, 1), stream, None)[0]


def streams(store: Store) -> list[str]:
    """Return the names of all streams; the first append creates a stream."""
    return [row.stream for row in look(store, lambda tx: tx.rows("inspect.streams"))]


def position(store: Store, stream: str, where: Position) -> int:
    """Return the offset just below a position."""
    known = checks.position(where, "where")
    return look(store, lambda tx: positions.offset_of(tx, stream, known))

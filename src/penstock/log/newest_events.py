"""Events of a stream, the newest first: for people who look, while `read` is for those who work."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from penstock.core.event import check_name, check_text
from penstock.log import checks
from penstock.log.transact import look
from penstock.stores.base import Store, Transaction

NEWEST: Final = 2**63 - 1
LOOK: Final = 5_000  # events among which a type is looked for
SHOWN_BYTES: Final = 200  # of a payload


@dataclass(frozen=True, slots=True)
class EventLine:
    """An event in a list: the first bytes of its payload, and how many it has."""

    offset: int
    event_id: uuid.UUID
    event_type: str
    ordering_key: str | None
    content_type: str
    created_at: datetime
    available_at: datetime | None
    size: int  # of the payload in bytes
    payload: bytes  # the beginning of it


@dataclass(frozen=True, slots=True)
class EventPage:
    """A page of events; `before` is where the next one begins, None after the last one."""

    events: tuple[EventLine, ...]
    before: int | None
    horizon: int
    low: int  # nothing at or below it was looked at


def newest_events(store: Store, stream: str, before: int | None, type: str | None, limit: int) -> EventPage:
    """Return events below an offset, up to the horizon, the newest first; of a type among the next `LOOK` events."""
    check_name(stream, "stream")
    below = NEWEST if before is None else checks.count(before, "before")
    wanted, most = check_text(type, "type"), checks.count(limit, "limit")

    def work(tx: Transaction) -> EventPage:
        upto = tx.horizon()
        looked = most if wanted is None else LOOK
        low, lowest = floor(tx, stream, min(below - 1, upto), looked)
        params = page_of(stream, below, upto, wanted, most, low)
        found = tuple(EventLine(*row) for row in tx.rows("newest.events", **params))
        return EventPage(found, found[-1].offset if len(found) == most else lowest, upto, low)

    return look(store, work)


def floor(tx: Transaction, stream: str, top: int, wanted: int) -> tuple[int, int | None]:
    """Return an offset with so many events of a stream between it and `top`, and the lowest
    of them; None if there are fewer.

    The planner does not know how many events a stream has. An offset from which on it looks bounds what it reads.
    """
    span = wanted
    while True:
        low = max(0, top - span)
        row = tx.one("newest.among", stream=stream, low=low, high=top, look=wanted)
        assert row is not None
        if int(row.events) >= wanted:
            return low, int(row.offset)
        if low == 0:
            return 0, None
        span *= 4


def page_of(stream: str, before: int, upto: int, type: str | None, limit: int, low: int) -> dict[str, Any]:
    """Return the parameters of `newest.events`."""
    where = {"stream": stream, "low": low, "before": min(before, NEWEST), "upto": upto, "event_type": type}
    return {**where, "limit": limit, "shown": SHOWN_BYTES, "look": limit if type is None else LOOK}

"""Positions in a stream: translate a time or a name to an offset."""

from __future__ import annotations

from datetime import datetime

from penstock.core.group import Position
from penstock.errors import InvalidInput
from penstock.stores.base import Transaction

OUT_OF_ORDER = 10_000  # offsets by which an event may be younger than one above it


def offset_of(tx: Transaction, stream: str, where: Position) -> int:
    """Translate "beginning", "end", an offset or a time of creation to an offset; a group gets what is above it."""
    if where == "beginning":
        return 0
    if where == "end":
        return tx.horizon()
    if isinstance(where, datetime):
        return _offset_at(tx, stream, where)
    if isinstance(where, int) and not isinstance(where, bool) and where >= 0:
        return where
    raise InvalidInput(f'A position must be "beginning", "end", an offset or a datetime, not {where!r}.')


def last_offset(tx: Transaction) -> int:
    """Return the highest stored offset."""
    last = tx.one("inspect.last_offset")
    return 0 if last is None or last.offset is None else int(last.offset)


def _offset_at(tx: Transaction, stream: str, at: datetime) -> int:
    """Return the offset below the first event created at a time or later; the horizon if there is none.

    Offsets and times grow together, except for concurrent appends, so bisection finds it.
    """
    low, high = 0, last_offset(tx)
    while low < high:
        middle = (low + high) // 2
        row = tx.one("group.created_after", stream=stream, after=middle)
        if row is None or row.created_at >= at:
            high = middle
        else:
            low = int(row.offset)
    row = tx.one("group.offset_at", stream=stream, at=at, low=max(0, low - OUT_OF_ORDER), high=low)
    if row is not None and row.offset is not None:
        return int(row.offset) - 1
    return tx.horizon() if tx.one("group.created_after", stream=stream, after=low) is None else low


def between(tx: Transaction, stream: str, since: datetime | None, until: datetime | None) -> tuple[int, int]:
    """Return (low, high] with every event of a stream created at `since` or later, and before `until`."""
    low, high = 0, last_offset(tx)
    if since is not None:
        low = offset_of(tx, stream, since)
    if until is not None:
        high = min(high, offset_of(tx, stream, until) + OUT_OF_ORDER)
    return low, high

"""Between Python's values and SQLite's: times are microseconds, ids are text, arrays are JSON."""

from __future__ import annotations

import sqlite3
import uuid
from collections import namedtuple
from collections.abc import Callable
from datetime import datetime, timedelta
from enum import Enum
from functools import cache
from typing import Any

import orjson

from penstock.core import moments
from penstock.stores.base import Row

_MICROSECOND = timedelta(microseconds=1)
_PLAIN = frozenset({int, str, bytes, float, bool, type(None)})
_LISTS = frozenset(
    {"starts", "holes", "offsets", "open_before", "open_ids", "expired_ids", "answer", "types", "delayed", "blocked"}
)

Decoder = Callable[[Any], Any]


def micros(moment: datetime) -> int:
    """A time as it is stored."""
    return (moment - moments.EPOCH) // _MICROSECOND


def moment(stored: int) -> datetime:
    """A stored time as an aware datetime."""
    return moments.of_micros(stored)


def id_text(event_id: uuid.UUID | bytes) -> str:
    """An id as it is stored; bulk appends bring it as bytes."""
    if isinstance(event_id, uuid.UUID):
        return str(event_id)
    text = event_id.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def encode(value: Any) -> Any:
    """A parameter as SQLite stores it."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, datetime):
        return micros(value)
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, list | tuple | dict):
        return orjson.dumps(value, default=_in_json, option=orjson.OPT_PASSTHROUGH_DATETIME).decode()
    return value


def _in_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return micros(value)
    raise TypeError(f"{type(value).__name__} cannot be stored")


def users(value: Any) -> Any:
    """A parameter of the user's own statement: what `sqlite3` itself would make of a time, and ids as text."""
    if isinstance(value, datetime):
        return value.isoformat(" ")
    return str(value) if isinstance(value, uuid.UUID) else value


@cache
def _shape(columns: tuple[str, ...]) -> tuple[Decoder, list[tuple[int, Decoder]]]:
    """How to make a row with these columns, and which of them need decoding."""
    decoders: list[tuple[int, Decoder]] = []
    for position, name in enumerate(columns):
        if name.endswith("_at") or name == "now":
            decoders.append((position, moment))
        elif name in _LISTS:
            decoders.append((position, orjson.loads))
        elif name == "event_id":
            decoders.append((position, uuid.UUID))
    row_class: Any = namedtuple("Row", columns, rename=True)  # type: ignore[misc]  # columns are known only now
    return row_class._make, decoders


def rows_of(cursor: sqlite3.Cursor) -> list[Row]:
    """All rows of a cursor, decoded by the names of their columns."""
    if cursor.description is None:
        return []
    make, decoders = _shape(tuple(column[0] for column in cursor.description))
    if not decoders:
        return [make(row) for row in cursor]
    found = []
    for row in cursor:
        values = list(row)
        for position, decode in decoders:
            if values[position] is not None:
                values[position] = decode(values[position])
        found.append(make(values))
    return found

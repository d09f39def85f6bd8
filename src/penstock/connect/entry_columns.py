"""Plain entries as events, all at once: what `entry_fields` makes of them one by one, without an object for each.

Whatever is not plain (headers, ids of its own, JSON beside other bytes, what is to be rejected) makes the whole batch
go the other way; so nothing is decided here that is not decided there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import orjson

from penstock.connect.entry_fields import NULL, TYPES, sniffed
from penstock.core.codec import BINARY, JSON
from penstock.core.entry import first_id_of
from penstock.core.entry_ids import EntryId
from penstock.core.event import EventColumns, check_key, check_name
from penstock.core.lanes import bucket_of
from penstock.core.limits import PAYLOAD_BYTES
from penstock.errors import InvalidInput

_NUMBERS: Final = 1 << 62  # as many are in an id: see `first_id_of`
_SEQUENCE_BITS: Final = 14  # of the number of an id within its millisecond
_SEQUENCES: Final = 1 << _SEQUENCE_BITS
_TIMES: Final = _NUMBERS >> _SEQUENCE_BITS
_Columns = Callable[[str, Sequence[Any]], EventColumns | None]


def number_of(ms: int, n: int) -> int | None:
    """Return the number of a Valkey entry, which orders as its id does; None if the id is too large for that."""
    return ms << _SEQUENCE_BITS | n if ms < _TIMES and n < _SEQUENCES else None


def of_messages(first_ids: Mapping[int, int], default_type: str) -> _Columns:
    """Return what makes events of Kafka messages; `first_ids` are those of their partitions."""

    @_unless_odd
    def columns(into: str, messages: Sequence[Any]) -> EventColumns | None:
        ids, bodies, keys = [], [], []
        for message in messages:
            if message.headers():
                return None
            ids.append(first_ids[message.partition()] + message.offset())
            body = message.value()
            bodies.append(NULL if body is None else body)
            keys.append(message.key() or None)
        return _plain(into, ids, [default_type] * len(ids), bodies, keys)

    return columns


def of_entries(source: str, default_type: str, ids: Sequence[EntryId]) -> _Columns:
    """Return what makes events of the Valkey entries with these ids."""
    first = first_id_of(source, "")

    @_unless_odd
    def columns(into: str, found: Sequence[Any]) -> EventColumns | None:
        if max(ids).ms >= _TIMES or max(n for _, n in ids) >= _SEQUENCES:
            return None
        kinds, bodies, keys = [], [], []
        types: dict[bytes | None, str] = {None: default_type}
        for _, pairs in found:
            if len(pairs) == 4 and pairs[2] == b"payload" and pairs[0] in TYPES:
                _, kind, _, body = pairs
                key = None
            else:
                fields = dict(zip(pairs[::2], pairs[1::2], strict=True))
                if 2 * len(fields) < len(pairs):
                    return None
                kind = fields.get(b"event_type", fields.get(b"type"))
                if b"payload" in fields:
                    key, body = fields.get(b"key"), fields[b"payload"]
                    if len(fields) > 1 + (kind is not None) + (b"key" in fields):
                        return None
                else:
                    key, body = None, orjson.dumps({name.decode(): value.decode() for name, value in fields.items()})
            if kind not in types:
                types[kind] = kind.decode()
            kinds.append(types[kind])
            bodies.append(body)
            keys.append(key or None)
        numbers = [first + (ms << _SEQUENCE_BITS | n) for ms, n in ids]
        return _plain(into, numbers, kinds, bodies, keys)

    return columns


def _unless_odd(columns: _Columns) -> _Columns:
    """Leave text that is none, and whatever else has to be rejected, to the way that says why."""

    def checked(into: str, raw: Sequence[Any]) -> EventColumns | None:
        try:
            return columns(into, raw) if raw else None
        except (ValueError, InvalidInput):
            return None

    return checked


def _plain(
    into: str, ids: Sequence[int], types: list[str], bodies: list[bytes], keys: Sequence[bytes | None]
) -> EventColumns | None:
    """Check what is left to be checked; None if one of the events has to be looked at by itself."""
    if max(map(len, bodies)) > PAYLOAD_BYTES or {*map(type, bodies)} != {bytes}:
        return None
    content_type = sniffed(bodies[0])
    if content_type == JSON:
        loads = orjson.loads
        for body in bodies:
            loads(body)
    elif any(sniffed(body) != BINARY for body in bodies):
        return None
    texts = {key: key.decode() for key in {*keys} if key is not None}
    buckets = {text: bucket_of(check_key(text, "key")) for text in texts.values()}
    for one in {*types}:
        check_name(one, "type")
    ordering_keys = [None if key is None else texts[key] for key in keys] if texts else [None] * len(ids)
    return EventColumns(into, ids, types, bodies, ordering_keys, buckets, content_type, encoded=True)

"""Bulk appends on a connection of Penstock's own: COPY where the ids are new, one INSERT where they may be known."""

from __future__ import annotations

import itertools
import struct
import uuid
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from penstock.core.event import EventColumns, NewEvent, check_same
from penstock.stores.base import IdTaken

if TYPE_CHECKING:
    import psycopg

    from penstock.stores.postgres.store import PostgresStore

_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TRAILER = b"\xff\xff"
_NULL = b"\xff\xff\xff\xff"
_UUID_LENGTH = b"\x00\x00\x00\x10"
_JSONB = b"\x01"  # the version byte in front of binary jsonb
_STAGED_COLUMNS = (13).to_bytes(2, "big")
_STAGED_AT_ONCE = 1_000
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_length = struct.Struct("!i").pack
_bucket = struct.Struct("!ih").pack
_moment = struct.Struct("!iq").pack


def append(
    connection: psycopg.Connection[Any],
    store: PostgresStore,
    events: Sequence[NewEvent] | EventColumns,
    *,
    unique: bool,
) -> int:
    """Store events; returns how many were duplicates."""
    if isinstance(events, EventColumns) or unique:
        from psycopg.errors import UniqueViolation

        try:
            copy(connection, store, events)
        except UniqueViolation as error:
            raise IdTaken from error
        return 0
    return _insert(connection, store, events)


def copy(connection: psycopg.Connection[Any], store: PostgresStore, events: Sequence[NewEvent] | EventColumns) -> None:
    """One binary COPY, laid out here chunk by chunk: the server stores one while the next is being made."""
    created_at = None if store.clock is None else store.clock.now()
    block = "append.copy" if created_at is None else "append.copy_at"
    with connection.cursor() as cursor, cursor.copy(store.blocks[block]) as stream:
        for chunk in copy_chunks(events, created_at):
            stream.write(chunk)


def copy_chunks(events: Sequence[NewEvent] | EventColumns, created_at: datetime | None = None) -> Iterator[bytes]:
    """The bytes of a binary COPY of these events."""
    yield _HEADER
    end = b"" if created_at is None else _time(created_at)
    columns = (11 if created_at is None else 12).to_bytes(2, "big")
    if isinstance(events, EventColumns):
        yield from _column_chunks(events, columns, end)
    else:
        yield b"".join(_rows(events, columns, itertools.repeat(end)))
    yield _TRAILER


def stage(
    connection: psycopg.Connection[Any],
    store: PostgresStore,
    events: Sequence[NewEvent],
    attempt: uuid.UUID,
    sources: Sequence[int] | None,
) -> None:
    """One binary COPY into the staging table, laid out like that of an append, with the attempt and the offset of the
    event it was made of at the end."""
    end = _UUID_LENGTH + attempt.bytes
    ends = itertools.repeat(end + _NULL) if sources is None else (end + _moment(8, one) for one in sources)
    with connection.cursor() as cursor, cursor.copy(store.blocks["stage.copy"]) as stream:
        stream.write(_HEADER)
        for start in range(0, len(events), _STAGED_AT_ONCE):
            stream.write(b"".join(_rows(events[start : start + _STAGED_AT_ONCE], _STAGED_COLUMNS, ends)))
        stream.write(_TRAILER)


def _column_chunks(events: EventColumns, columns: bytes, end: bytes) -> Iterator[bytes]:
    """What repeats from event to event is laid out once."""
    start = columns + _piece(events.stream) + _UUID_LENGTH
    kinds = {kind: _piece(kind) for kind in set(events.event_types)}
    middle = _piece(events.content_type) + 3 * _NULL
    keys: dict[str | None, bytes] = {
        key: middle + _piece(key) + _bucket(2, bucket) + _NULL + end for key, bucket in events.buckets.items()
    }
    keys[None] = middle + 3 * _NULL + end
    length = _length
    for chunk in events.chunks():
        yield b"".join(
            [start + one + kinds[kind] + length(len(body)) + body + keys[key] for one, kind, body, key in chunk]
        )


def _rows(events: Sequence[NewEvent], columns: bytes, ends: Iterable[bytes]) -> Iterator[bytes]:
    for event, end in zip(events, ends, strict=False):
        yield columns + _piece(event.stream) + _UUID_LENGTH + event.event_id.bytes + _piece(event.event_type)
        yield _length(len(event.payload)) + event.payload + _piece(event.content_type)
        yield _json(event.headers) + _json(event.metadata) + _piece(event.partition_key) + _piece(event.ordering_key)
        yield _NULL if event.bucket is None else _bucket(2, event.bucket)
        yield (_NULL if event.available_at is None else _time(event.available_at)) + end


def _piece(text: str | None) -> bytes:
    if text is None:
        return _NULL
    encoded = text.encode()
    return _length(len(encoded)) + encoded


def _json(text: str | None) -> bytes:
    if text is None:
        return _NULL
    encoded = text.encode()
    return _length(len(encoded) + 1) + _JSONB + encoded


def _time(moment: datetime) -> bytes:
    delta = moment - _EPOCH
    return _moment(8, (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds)


def _insert(connection: psycopg.Connection[Any], store: PostgresStore, events: Sequence[NewEvent]) -> int:
    ids = [one.event_id for one in events]
    columns: dict[str, Any] = {name: [getattr(one, name) for one in events] for name in NewEvent._fields}
    block = "append.many"
    if store.clock is not None:
        block, columns["created_at"] = "append.many_at", store.clock.now()
    with connection.cursor() as cursor:
        cursor.execute(store.blocks[block], columns, prepare=False)
        stored = {row[0] for row in cursor.fetchall()}
        if len(stored) == len(events):
            return 0
        cursor.execute(store.blocks["append.known"], columns, prepare=False)
        others = {row[0] for row in cursor.fetchall() if not row[1]}
    for one_id, one in zip(ids, events, strict=True):
        check_same(one_id, one_id not in others, one)
    return len(events) - len(stored)

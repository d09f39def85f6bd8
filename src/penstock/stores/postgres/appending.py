"""Bulk appends on a connection of Penstock's own: COPY where the ids are new, one INSERT where they may be known."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, LiteralString, cast

from penstock.core.event import NewEvent
from penstock.errors import DuplicateMismatch

if TYPE_CHECKING:
    import psycopg

    from penstock.stores.postgres.store import PostgresStore

_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TRAILER = b"\xff\xff"
_NULL = b"\xff\xff\xff\xff"
_UUID_LENGTH = b"\x00\x00\x00\x10"
_JSONB = b"\x01"  # the version byte in front of binary jsonb
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_length = struct.Struct("!i").pack
_bucket = struct.Struct("!ih").pack
_moment = struct.Struct("!iq").pack


def append(
    connection: psycopg.Connection[Any], store: PostgresStore, events: Sequence[NewEvent], *, unique: bool
) -> int:
    """Store events; returns how many were duplicates."""
    if unique:
        copy(connection, store, events)
        return 0
    return _insert(connection, store, events)


def copy(connection: psycopg.Connection[Any], store: PostgresStore, events: Iterable[NewEvent]) -> None:
    """One binary COPY; every byte of it is laid out here, once per event."""
    created_at = None if store.clock is None else store.clock.now()
    block = "append.copy" if created_at is None else "append.copy_at"
    with connection.cursor() as cursor, cursor.copy(cast(LiteralString, store.blocks[block])) as stream:
        stream.write(b"".join(copy_bytes(events, created_at)))


def copy_bytes(events: Iterable[NewEvent], created_at: datetime | None = None) -> list[bytes]:
    """The pieces of a binary COPY. Texts that repeat from event to event are encoded once."""
    texts: dict[str | None, bytes] = {None: _NULL}
    columns = 11 if created_at is None else 12
    start = columns.to_bytes(2, "big")
    end = b"" if created_at is None else _time(created_at)
    out = [_HEADER]
    add = out.append
    for stream, event_id, event_type, payload, content_type, headers, metadata, partition, key, bucket, due in events:
        add(start)
        add(texts.get(stream) or _text(texts, stream))
        add(_UUID_LENGTH)
        add(event_id if isinstance(event_id, bytes) else event_id.bytes)
        add(texts.get(event_type) or _text(texts, event_type))
        add(_length(len(payload)))
        add(payload)
        add(texts.get(content_type) or _text(texts, content_type))
        add(_NULL if headers is None else _json(headers))
        add(_NULL if metadata is None else _json(metadata))
        add(texts.get(partition) or _text(texts, partition))
        add(texts.get(key) or _text(texts, key))
        add(_NULL if bucket is None else _bucket(2, bucket))
        add(_NULL if due is None else _time(due))
        add(end)
    add(_TRAILER)
    return out


def _text(texts: dict[str | None, bytes], text: str | None) -> bytes:
    assert text is not None
    encoded = text.encode()
    piece = texts[text] = _length(len(encoded)) + encoded
    return piece


def _json(text: str) -> bytes:
    encoded = text.encode()
    return _length(len(encoded) + 1) + _JSONB + encoded


def _time(moment: datetime) -> bytes:
    delta = moment - _EPOCH
    return _moment(8, (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds)


def _insert(connection: psycopg.Connection[Any], store: PostgresStore, events: Sequence[NewEvent]) -> int:
    ids = [one.event_id if isinstance(one.event_id, uuid.UUID) else uuid.UUID(bytes=one.event_id) for one in events]
    columns: dict[str, Any] = {name: [getattr(one, name) for one in events] for name in NewEvent._fields}
    columns["event_id"] = ids
    columns["created_at"] = None if store.clock is None else store.clock.now()
    with connection.cursor() as cursor:
        cursor.execute(cast(LiteralString, store.blocks["append.many"]), columns, prepare=False)
        stored = {row[0] for row in cursor.fetchall()}
        if len(stored) == len(events):
            return 0
        cursor.execute(cast(LiteralString, store.blocks["append.known"]), {"ids": ids}, prepare=False)
        known = {row[0]: (row[1], row[2], bytes(row[3])) for row in cursor.fetchall()}
    for one_id, one in zip(ids, events, strict=True):
        check_same(one_id, known[one_id], one)
    return len(events) - len(stored)


def check_same(event_id: uuid.UUID, known: tuple[str, str, bytes], event: NewEvent) -> None:
    """The same id must mean the same event."""
    if known != (event.stream, event.event_type, event.payload):
        raise DuplicateMismatch(f"Event id {event_id} is already taken by another event on {known[0]!r}.")

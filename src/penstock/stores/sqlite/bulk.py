"""Bulk appends on a connection of Penstock's own."""

from __future__ import annotations

import itertools
import sqlite3
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import orjson

from penstock.core.event import EventColumns, NewEvent, StoredEvent, check_same
from penstock.stores.base import IdTaken
from penstock.stores.sqlite.values import id_text, micros


def append(
    connection: sqlite3.Connection,
    blocks: Mapping[str, str],
    events: Sequence[NewEvent] | EventColumns,
    *,
    unique: bool,
    created_at: datetime,
) -> int:
    """Store events; returns how many were duplicates."""
    stamp = micros(created_at)
    if isinstance(events, EventColumns):
        return _append_new(connection, blocks, _of_columns(events, stamp))
    ids = [id_text(event.event_id) for event in events]
    if unique:
        return _append_new(connection, blocks, _of_events(events, ids, stamp))
    stored = connection.executemany(blocks["append.many"], _of_events(events, ids, stamp)).rowcount
    if stored == len(events):
        return 0
    found = connection.execute(blocks["append.known"], {"ids": orjson.dumps(ids).decode()})
    known = {row[0]: (row[1], row[2], bytes(row[3])) for row in found.fetchall()}
    for text, event in zip(ids, events, strict=True):
        check_same(text, known[text] == (event.stream, event.event_type, event.payload), event)
    return len(events) - stored


def _append_new(connection: sqlite3.Connection, blocks: Mapping[str, str], rows: Iterator[tuple[Any, ...]]) -> int:
    try:
        connection.executemany(blocks["append.new"], rows)
    except sqlite3.IntegrityError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_CONSTRAINT_UNIQUE:
            raise IdTaken from error
        raise
    return 0


def put_back(connection: sqlite3.Connection, blocks: Mapping[str, str], events: Sequence[StoredEvent]) -> list[int]:
    """Store events under their own offsets; returns the offsets of those that were not there."""
    connection.execute(blocks["restore.allow"])
    stored = [
        offset
        for event, offset, created_at in events
        if connection.execute(
            blocks["restore.put"],
            (
                offset,
                event.stream,
                id_text(event.event_id),
                *event[2:10],
                None if event.available_at is None else micros(event.available_at),
                micros(created_at),
            ),
        ).rowcount
    ]
    connection.execute(blocks["restore.disallow"])
    return stored


def stage(
    connection: sqlite3.Connection,
    blocks: Mapping[str, str],
    events: Sequence[NewEvent],
    attempt: uuid.UUID,
    sources: Sequence[int] | None,
) -> None:
    """Put events aside for a task attempt."""
    name = id_text(attempt)
    connection.executemany(
        blocks["stage.insert"],
        (
            (
                name,
                source,
                event.stream,
                id_text(event.event_id),
                *event[2:10],
                None if event.available_at is None else micros(event.available_at),
            )
            for event, source in zip(events, sources or itertools.repeat(None), strict=False)
        ),
    )


def _of_columns(events: EventColumns, stamp: int) -> Iterator[tuple[Any, ...]]:
    stream, buckets, content_type = events.stream, events.buckets, events.content_type
    for chunk in events.chunks():
        for event_id, kind, payload, key in chunk:
            bucket = None if key is None else buckets[key]
            yield stream, id_text(event_id), kind, payload, content_type, None, None, None, key, bucket, None, stamp


def _of_events(events: Sequence[NewEvent], ids: Sequence[str], stamp: int) -> Iterator[tuple[Any, ...]]:
    for text, event in zip(ids, events, strict=True):
        due = None if event.available_at is None else micros(event.available_at)
        yield event.stream, text, *event[2:10], due, stamp

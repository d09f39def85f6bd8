"""Bulk appends on a connection of Penstock's own."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime

import orjson

from penstock.core.event import NewEvent
from penstock.stores.duplicates import check_same
from penstock.stores.sqlite.values import id_text, micros


def append(
    connection: sqlite3.Connection,
    blocks: Mapping[str, str],
    events: Sequence[NewEvent],
    *,
    unique: bool,
    created_at: datetime,
) -> int:
    """Store events; returns how many were duplicates."""
    stamp = micros(created_at)
    ids = [id_text(event.event_id) for event in events]
    rows = (
        (stream, text, kind, payload, content_type, headers, metadata, partition, key, bucket, due and micros(due), stamp)
        for text, (stream, _, kind, payload, content_type, headers, metadata, partition, key, bucket, due) in zip(
            ids, events, strict=True
        )
    )
    if unique:
        connection.executemany(blocks["append.new"], rows)
        return 0
    stored = connection.executemany(blocks["append.many"], rows).rowcount
    if stored == len(events):
        return 0
    found = connection.execute(blocks["append.known"], {"ids": orjson.dumps(ids).decode()})
    known = {row[0]: (row[1], row[2], bytes(row[3])) for row in found.fetchall()}
    for text, event in zip(ids, events, strict=True):
        check_same(text, known[text], event)
    return len(events) - stored

"""Rows on their way into a table of SQLite: staged as JSON, which it takes apart itself."""

from __future__ import annotations

from collections.abc import Sequence, Set
from math import isinf
from typing import Any

from penstock.errors import InvalidPayload
from penstock.stores import tables


def insert_staged(table: str, columns: Sequence[str], keys: Sequence[str], binary: Set[str]) -> str:
    """Rows come in the order of their events, so that an upsert leaves what the last one says."""
    read = ", ".join(
        f"penstock_unhex(json_extract(s.fields, '$.\"{name}\"'))"
        if name in binary
        else f"json_extract(s.fields, '$.\"{name}\"')"
        for name in columns
    )
    text = (
        f"insert into {tables.quoted(table)} ({tables.listed(columns)}) select {read} from penstock_staged_rows s "
        "where s.attempt in (select value from json_each(?)) order by s.event_offset, s.position"
    )
    return f"{text} {tables.on_conflict(columns, keys)}" if keys else text


def staged_rows(columns: Sequence[str], values: Sequence[Sequence[Any]]) -> list[bytes]:
    """SQLite has no NaN and takes null for it."""
    if any(isinstance(one, float) and isinf(one) for column in values for one in column):
        raise InvalidPayload("A row has an infinite number, which cannot be brought into a table of SQLite.")
    return tables.as_json(columns, values, bytes.hex)

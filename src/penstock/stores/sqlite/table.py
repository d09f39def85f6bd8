"""Rows on their way into a table of SQLite: staged as JSON, which it takes apart itself."""

from __future__ import annotations

from collections.abc import Sequence
from math import isinf
from typing import Any

from penstock.core.target import Target
from penstock.errors import InvalidPayload
from penstock.stores import tables


def insert_staged(target: Target) -> str:
    """Rows come in the order of their events and change the table one by one, each finding what the last one left."""
    read = ", ".join(
        f"penstock_unhex(json_extract(s.fields, '$.\"{name}\"'))"
        if name in target.binary
        else f"json_extract(s.fields, '$.\"{name}\"')"
        for name in target.columns
    )
    return (
        f"{tables.insert_into(target)} select {read} from penstock_staged_rows s "
        f"where s.attempt in (select value from json_each(?)) order by s.event_offset, s.position"
        f"{tables.on_conflict(target)}"
    )


def staged_rows(columns: Sequence[str], values: Sequence[Sequence[Any]]) -> list[bytes]:
    """SQLite has no NaN and takes null for it."""
    if any(isinstance(one, float) and isinf(one) for column in values for one in column):
        raise InvalidPayload("A row has an infinite number, which cannot be brought into a table of SQLite.")
    return tables.as_json(columns, values, bytes.hex)

"""Rows on their way into a table of PostgreSQL: staged as JSON, of which the database makes its own types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.stores import tables


def insert_staged(schema: str, table: str, columns: Sequence[str], keys: Sequence[str]) -> str:
    """Of rows with the same key, the last event's counts."""
    target = tables.quoted(table)
    read = ", ".join(f'r."{name}"' for name in columns)
    source = (
        f"from {schema}.staged_rows s cross join lateral jsonb_populate_record(null::{target}, s.fields) r "
        "where s.attempt in (select one::uuid from jsonb_array_elements_text(?::jsonb) one)"
    )
    into = f"insert into {target} ({tables.listed(columns)})"
    if not keys:
        return f"{into} select {read} {source} order by s.event_offset, s.position"
    by = ", ".join(f'r."{key}"' for key in keys)
    last = f"order by {by}, s.event_offset desc nulls last, s.position desc"
    return f"{into} select distinct on ({by}) {read} {source} {last} {tables.on_conflict(columns, keys)}"


def staged_rows(columns: Sequence[str], values: Sequence[Sequence[Any]]) -> list[bytes]:
    """PostgreSQL knows infinities and NaN by name."""
    exact = [_by_name(column) if any(map(tables.not_finite, column)) else column for column in values]
    return tables.as_json(columns, exact, lambda value: f"\\x{value.hex()}")


def _by_name(column: Sequence[Any]) -> list[Any]:
    return [str(one) if tables.not_finite(one) else one for one in column]

"""Rows on their way into a table of PostgreSQL: staged as JSON, of which the database makes its own types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.core.target import Target
from penstock.stores import tables


def insert_staged(schema: str, target: Target) -> str:
    """One statement may touch a row of the table once only, so the rows of one key are joined first."""
    source = (
        f"from {schema}.staged_rows s "
        f"cross join lateral jsonb_populate_record(null::{tables.quoted(target.table)}, s.fields) r "
        "where s.attempt in (select one::uuid from jsonb_array_elements_text(?::jsonb) one)"
    )
    into = tables.insert_into(target)
    if not target.keys:
        return f"{into} select {_read(target)} {source} order by s.event_offset, s.position"
    by = _by(target)
    # Of the same version the first counts, as in the table; without versions what the last event says.
    newest = f'r."{target.version}" desc nulls last, ' if target.version is not None else ""
    last = "s.event_offset, s.position" if newest else "s.event_offset desc nulls last, s.position desc"
    one = f"select distinct on ({by}) {_read(target)} {source} order by {by}, {newest}{last}"
    return f"{into} {one}{tables.on_conflict(target)}"


def _by(target: Target) -> str:
    return ", ".join(f'r."{key}"' for key in target.keys)


def _read(target: Target) -> str:
    return ", ".join(
        f'sum(r."{name}") over (partition by {_by(target)})' if name in target.add else f'r."{name}"'
        for name in target.columns
    )


def staged_rows(columns: Sequence[str], values: Sequence[Sequence[Any]]) -> list[bytes]:
    """PostgreSQL knows infinities and NaN by name."""
    exact = [_by_name(column) if any(map(tables.not_finite, column)) else column for column in values]
    return tables.as_json(columns, exact, lambda value: f"\\x{value.hex()}")


def _by_name(column: Sequence[Any]) -> list[Any]:
    return [str(one) if tables.not_finite(one) else one for one in column]

"""Rows on their way into a table of PostgreSQL: staged with typed columns, and moved by one statement.

A value is staged as the type that Spark gives it, so that staging never fails because of the user's table: the
statement converts it, as the database reads text, and what it refuses is refused in the settle.
"""

from __future__ import annotations

import hashlib
from typing import Final

from penstock.core.target import StagingTable, Target
from penstock.errors import InvalidPipeline
from penstock.stores import tables
from penstock.stores.base import Row, Transaction

_TYPES: Final = {
    **{"tinyint": "smallint", "smallint": "smallint", "int": "integer", "bigint": "bigint", "float": "real"},
    **{"double": "double precision", "string": "text", "void": "text", "boolean": "boolean", "binary": "bytea"},
    **{"date": "date", "timestamp": "timestamptz", "timestamp_ntz": "timestamp", "decimal": "numeric"},
}
_NESTED: Final = "jsonb"
_LOCAL: Final = "timestamp without time zone"
_SAME: Final = {"timestamp": _LOCAL, "timestamptz": "timestamp with time zone"}  # other names of types
_NESTING: Final = ("A", "C", "U", "S")  # categories of types that take a list, struct or map: arrays, rows, JSON, text
_TEXTS: Final = ("text", "character varying", "character")  # a cast would cut what is too long


def staging_table(tx: Transaction, schema: str, target: Target) -> StagingTable:
    """Make the staging table for rows of this shape, if it is missing."""
    there = {row.name: row for row in tx.rows("pipeline.columns", table=tables.quoted(target.table))}
    named = [there[name] for name in target.columns]
    types = [_staged_as(kind, row) for kind, row in zip(target.kinds, named, strict=True)]
    for kind, staged, row in zip(target.kinds, types, named, strict=True):
        if staged == _NESTED and row.category not in _NESTING:
            raise InvalidPipeline(f"The column {row.name!r} is {row.type}, and the result's is {kind}.")
    digest = hashlib.sha256("\n".join([target.table, *types]).encode()).hexdigest()
    name = f"staged_rows_{digest[:16]}"
    tx.run("pipeline.make_staging", name=name, types=types)
    read = {
        row.name: _converted(target, f"s.c{place}", kind, row)
        for place, (kind, row) in enumerate(zip(types, named, strict=True), 1)
    }
    table = f"{schema}.{name}"
    return StagingTable(
        *(table, target.columns, types),
        move=_move(target, table, read, ""),
        move_part=_move(target, table, read, " and s.event_offset between ? and ?"),
    )


def _staged_as(kind: str, column: Row) -> str:
    """A moment in a column without a time zone is what Spark's clock on the wall showed."""
    staged = _TYPES.get(kind.partition("(")[0], _NESTED)
    return "timestamp" if staged == "timestamptz" and column.base == _LOCAL else staged


def _converted(target: Target, value: str, staged: str, column: Row) -> str:
    """A staged value as its column takes it."""
    if column.type == _SAME.get(staged, staged):
        return value
    if staged == _NESTED:
        record = f"jsonb_build_object('{column.name}', {value})"
        return f'(jsonb_populate_record(null::{tables.quoted(target.table)}, {record}))."{column.name}"'
    return f"{value}::text::{column.base if column.base in _TEXTS else column.type}"


def _move(target: Target, table: str, read: dict[str, str], part: str) -> str:
    """One statement may touch a row of the table once only, so the rows of one key are joined first."""
    source = f"from {table} s where s.attempt in (select one::uuid from jsonb_array_elements_text(?::jsonb) one){part}"
    into = tables.insert_into(target)
    by = ", ".join(read[key] for key in target.keys)
    values = ", ".join(
        f"sum({value}) over (partition by {by})" if name in target.add else value for name, value in read.items()
    )
    if not target.keys:
        return f"{into} select {values} {source} order by s.event_offset, s.position"
    # Of the same version the first counts, as in the table; without versions what the last event says.
    newest = f"{read[target.version]} desc nulls last, " if target.version is not None else ""
    last = "s.event_offset, s.position" if newest else "s.event_offset desc nulls last, s.position desc"
    return (
        f"{into} select distinct on ({by}) {values} {source} order by {by}, {newest}{last}{tables.on_conflict(target)}"
    )

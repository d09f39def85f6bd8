"""Rows on their way into a table of SQLite: staged as JSON, which it takes apart itself."""

from __future__ import annotations

from collections.abc import Iterator
from math import isinf
from typing import Any

from penstock.core.target import StagingTable, Target
from penstock.errors import InvalidPayload
from penstock.stores import tables


def staging_table(target: Target) -> StagingTable:
    """All rows are staged in one table."""
    return StagingTable(
        *("penstock_staged_rows", target.columns, target.kinds),
        move=_move(target, ""),
        move_part=_move(target, " and s.event_offset between ? and ?"),
    )


def _move(target: Target, part: str) -> str:
    """Rows come in the order of their events and change the table one by one, each finding what the last one left."""
    read = ", ".join(
        f"penstock_unhex(json_extract(s.fields, '$.\"{name}\"'))"
        if name in target.binary
        else f"json_extract(s.fields, '$.\"{name}\"')"
        for name in target.columns
    )
    return (
        f"{tables.insert_into(target)} select {read} from penstock_staged_rows s "
        f"where s.attempt in (select value from json_each(?)){part} order by s.event_offset, s.position"
        f"{tables.on_conflict(target)}"
    )


def staged_rows(table: StagingTable, rows: Any) -> Iterator[tuple[int | None, str]]:
    """The rows of a record batch: the offset of the event, and the columns as JSON. SQLite takes null for NaN."""
    offsets = rows.column("offset").to_pylist() if "offset" in rows.schema.names else [None] * len(rows)
    values = [rows.column(name).to_pylist(maps_as_pydicts="strict") for name in table.columns]
    if any(isinstance(one, float) and isinf(one) for column in values for one in column):
        raise InvalidPayload("A row has an infinite number, which cannot be brought into a table of SQLite.")
    for offset, row in zip(offsets, zip(*values, strict=True), strict=True):
        for value in row:
            tables.check_nested(value)
        yield offset, tables.as_json(dict(zip(table.columns, row, strict=True)), bytes.hex).decode()

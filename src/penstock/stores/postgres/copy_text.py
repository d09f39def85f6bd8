"""Columns of Arrow as the text of a COPY, made without a step of Python per value."""

from __future__ import annotations

import uuid
from typing import Any

from psycopg import sql

from penstock.core.target import StagingTable
from penstock.errors import InvalidPayload
from penstock.stores import tables

_SPECIAL = "[\\x00\\\\\t\n\r]"  # has a meaning in the text of a COPY
_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))
_NULL = "\\N"


def copy_statement(table: StagingTable) -> sql.Composed:
    """The COPY that takes `copy_lines`."""
    columns = ["attempt", "position", "event_offset", *(f"c{place}" for place in range(1, len(table.columns) + 1))]
    return sql.SQL("copy {} ({}) from stdin").format(
        sql.Identifier(*table.name.split(".")), sql.SQL(", ").join(map(sql.Identifier, columns))
    )


def copy_lines(table: StagingTable, attempt: uuid.UUID, first: int, rows: Any) -> memoryview:
    """A line per row of a record batch; `first` is the position of the first one.

    >>> import pyarrow as pa
    >>> table = StagingTable("t", ["n", "text"], ["bigint", "text"], "", "")
    >>> rows = pa.RecordBatch.from_pydict({"n": [1, None], "text": ["a\\tb", ""], "offset": [7, 8]})
    >>> bytes(copy_lines(table, uuid.UUID(int=0), 5, rows)).decode().splitlines()[1].split("\\t")[1:]
    ['6', '8', '\\\\N', '']
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    count = len(rows)
    offsets = rows.column("offset") if "offset" in rows.schema.names else pa.nulls(count)
    columns = [pa.repeat(str(attempt), count), pa.array(range(first, first + count)), offsets]
    columns += [_prepared(rows.column(name), kind) for name, kind in zip(table.columns, table.types, strict=True)]
    texts = [pc.cast(column, pa.string()) for column in columns]
    lines = pc.binary_join_element_wise(*texts, "\t", null_handling="replace", null_replacement=_NULL)
    ended = pc.binary_join_element_wise(lines, "", "\n")
    _, bounds, data = ended.buffers()
    ends = memoryview(bounds).cast("i")
    return memoryview(data)[ends[ended.offset] : ends[ended.offset + count]]


def _prepared(column: Any, kind: str) -> Any:
    """A column whose text is what the database reads."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if kind == "bytea":
        return pa.array([None if one is None else f"\\\\x{one.hex()}" for one in column.to_pylist()], pa.string())
    if kind == "jsonb":
        values = column.to_pylist(maps_as_pydicts="strict")
        return _escaped(pa.array([None if one is None else _json(one) for one in values], pa.string()))
    if kind == "timestamp" and getattr(column.type, "tz", None) is not None:
        return pc.local_timestamp(column)
    return _escaped(pc.cast(column, pa.string())) if kind == "text" else column


def _json(value: Any) -> str:
    tables.check_nested(value)
    return tables.as_json(value, lambda data: f"\\x{data.hex()}").decode()


def _escaped(texts: Any) -> Any:
    """Most texts have nothing to escape, which one look at the column tells."""
    import pyarrow.compute as pc

    if not pc.any(pc.match_substring_regex(texts, _SPECIAL)).as_py():
        return texts
    if pc.any(pc.match_substring(texts, "\0")).as_py():
        raise InvalidPayload("A row has a NUL character, which PostgreSQL cannot store in a text.")
    for plain, escaped in _ESCAPES:
        texts = pc.replace_substring(texts, plain, escaped)
    return texts

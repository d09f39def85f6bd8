"""The columns of each kind of read, and the conversion from what a store returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.core.codec import decode_headers
from penstock.spark.arrow import EVENTS_DDL

_DELIVERY = (
    "stream string, group_name string, offset bigint, event_id string, event_type string, state string, attempts int, "
    "failures int, available_at timestamp, claimed_at timestamp, claimed_by string, last_error string, "
    "error_code string, reason string, published_at timestamp, dead_at timestamp, updated_at timestamp, "
    "ordering_key string, lease bigint"
)
# In the order in which the blocks `source.*` select them.
DDL: Final[Mapping[str, str]] = {
    "events": EVENTS_DDL,
    "deliveries": _DELIVERY,
    "dead": (
        f"{_DELIVERY}, payload binary, content_type string, headers map<string,string>, metadata string, "
        "created_at timestamp"
    ),
    "attempts": (
        "stream string, group_name string, offset bigint, event_id string, event_type string, attempt int, "
        "failures int, replays int, outcome string, error string, error_code string, claimed_by string, "
        "claimed_at timestamp, ended_at timestamp, lease bigint"
    ),
}


def types_of(what: str) -> dict[str, str]:
    """Return every column with its type."""
    return dict(column.strip().split(" ", 1) for column in DDL[what].replace("<string,string>", "<>").split(","))


def ddl_of(what: str, columns: Sequence[str]) -> str:
    """Return the DDL of these columns."""
    types = types_of(what)
    return ", ".join(f"{name} {types[name].replace('<>', '<string,string>')}" for name in columns)


def from_arrow(batch: Any, schema: Any, stream: str) -> Any:
    """Convert a record batch of PostgreSQL's driver: pick the wanted columns and cast them.

    The stream is the same for all events, so it is added here and not read with every row.
    """
    import pyarrow as pa

    there, arrays = set(batch.schema.names), []
    for field in schema:
        array = batch.column(field.name) if field.name in there else pa.repeat(pa.scalar(stream), len(batch))
        if not pa.types.is_map(field.type):
            arrays.append(array if array.type == field.type else array.cast(field.type))
        elif array.null_count == len(array):  # nearly always
            arrays.append(pa.nulls(len(array), field.type))
        else:
            arrays.append(_maps(array.to_pylist(), field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def from_rows(rows: Sequence[Sequence[Any]], places: Sequence[int], schema: Any) -> Any:
    """Convert rows of SQLite, where times are microseconds."""
    import pyarrow as pa

    arrays = []
    for place, field in zip(places, schema, strict=True):
        values = [row[place] for row in rows]
        if pa.types.is_map(field.type):
            arrays.append(_maps(values, field.type))
        elif pa.types.is_timestamp(field.type):
            arrays.append(pa.array(values, pa.int64()).cast(field.type))
        else:
            arrays.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _maps(texts: Sequence[str | None], kind: Any) -> Any:
    import pyarrow as pa

    return pa.array([None if text is None else list(decode_headers(text).items()) for text in texts], kind)

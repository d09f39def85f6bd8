"""Events as Arrow record batches for Spark; tasks read them directly from the database."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

from penstock.core.batch import moment
from penstock.core.codec import decode_headers
from penstock.core.columns import COLUMNS, Columns, RowColumns
from penstock.core.lease import LeaseRow
from penstock.log.log import Log

# An event as Spark sees it, in every kind of read.
EVENTS_DDL = (
    "offset bigint, event_id string, event_type string, payload binary, content_type string, "
    "headers map<string,string>, metadata string, partition_key string, ordering_key string, "
    "available_at timestamp, created_at timestamp, stream string"
)
_HEADERS = COLUMNS.index("headers")
_BATCH_BYTES = 4 * 1024 * 1024


@cache
def events_schema() -> Any:
    """Return `EVENTS_DDL` as an Arrow schema."""
    import pyarrow as pa

    time = pa.timestamp("us", tz="UTC")
    kinds = {
        "offset": pa.int64(),
        "payload": pa.binary(),
        "headers": pa.map_(pa.string(), pa.string()),
        "available_at": time,
        "created_at": time,
    }
    names = [*COLUMNS, "stream"]
    return pa.schema([pa.field(name, kinds.get(name, pa.string())) for name in names])


def read_lease(log: Log, row: LeaseRow) -> Iterator[Any]:
    """Read the members of a lease, or of a part (see `parts`), in record batches, in offset order."""
    return _batches(log, row.stream, *log.store.lease_query(row))


@cache
def claimed_schema() -> Any:
    """Return the schema of events for a pipeline: with the attempts of their delivery."""
    import pyarrow as pa

    return events_schema().append(pa.field("attempts", pa.int32()))


def read_claimed(log: Log, row: LeaseRow, columns: Sequence[str]) -> Iterator[Any]:
    """Read some columns of `claimed_schema`, in record batches of about 4 MB, in offset order."""
    import pyarrow as pa

    schema = pa.schema([claimed_schema().field(name) for name in columns])
    for batch in _select(log, row, columns):
        size = max(1, len(batch) * _BATCH_BYTES // max(_BATCH_BYTES, batch.nbytes))
        whole = pa.RecordBatch.from_arrays(
            [batch.column(name).cast(schema.field(name).type) for name in columns], schema=schema
        )
        for first in range(0, len(whole), size):
            yield whole.slice(first, size)


def _select(log: Log, row: LeaseRow, columns: Sequence[str]) -> Iterator[Any]:
    """Read batches with these columns. Rows of a list lease have their own attempts; a range has those of its lease."""
    import pyarrow as pa

    block, params = log.store.lease_query(row)
    stored = [name for name in columns if name in COLUMNS or (name == "attempts" and row.offsets is not None)]
    for piece in log.store.read_pieces(block, stored or ["offset"], **params):
        batch = _with_attempts(RowColumns(piece)) if isinstance(piece, list) else piece
        if "headers" in stored and batch.schema.field("headers").type != events_schema().field("headers").type:
            place = batch.schema.names.index("headers")
            batch = batch.set_column(place, "headers", _maps(batch.column(place)))
        if "stream" in columns:
            batch = batch.append_column("stream", pa.repeat(pa.scalar(row.stream), len(batch)))
        if "attempts" in columns and "attempts" not in stored:
            batch = batch.append_column("attempts", pa.repeat(pa.scalar(row.attempts, pa.int32()), len(batch)))
        yield batch


def _with_attempts(columns: RowColumns) -> Any:
    """Convert rows to a record batch, with attempts if they are of a list lease."""
    batch = _of_rows(columns, "").drop_columns(["stream"])
    if columns.width > len(COLUMNS):
        import pyarrow as pa

        batch = batch.append_column("attempts", pa.array(columns.column(len(COLUMNS)), pa.int32()))
    return batch


def read_range(log: Log, stream: str, low: int, high: int) -> Iterator[Any]:
    """Read all events of a stream in (low, high]; `high` must not exceed the horizon."""
    return _batches(log, stream, "read.events", {"stream": stream, "after": low, "upto": high, "limit": high - low})


def parts(row: LeaseRow, count: int) -> list[LeaseRow]:
    """Cut a lease into at most `count` parts, which are read independently and together hold all its members."""
    if row.offsets is not None:
        size = max(1, -(-len(row.offsets) // count))
        chunks = [row.offsets[first : first + size] for first in range(0, len(row.offsets), size)]
        return [replace(row, offsets=chunk, members=len(chunk)) for chunk in chunks]
    assert row.low is not None and row.high is not None
    bounds = sorted({row.low + (row.high - row.low) * step // count for step in range(count + 1)})
    members = max(1, row.members // count)
    return [
        replace(row, low=low, high=high, members=members, found=None, whole=row.whole and row.lanes == 1)
        for low, high in pairwise(bounds)
    ]


def _batches(log: Log, stream: str, block: str, params: dict[str, Any]) -> Iterator[Any]:
    for piece in log.store.read_pieces(block, **params):
        yield _of_rows(RowColumns(piece), stream) if isinstance(piece, list) else _typed(piece, stream)


def _typed(batch: Any, stream: str) -> Any:
    """Convert a batch of the database driver: headers become a map, and the stream is added."""
    import pyarrow as pa

    schema = events_schema()
    arrays = [batch.column(position) for position in range(len(COLUMNS))]
    arrays[_HEADERS] = _maps(arrays[_HEADERS])
    arrays = [array.cast(field.type) for array, field in zip(arrays, schema, strict=False)]
    arrays.append(pa.repeat(pa.scalar(stream), len(batch)))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _maps(texts: Any) -> Any:
    import pyarrow as pa

    kind = events_schema().field("headers").type
    if texts.null_count == len(texts):
        return pa.nulls(len(texts), kind)
    return pa.array([None if text is None else list(decode_headers(text).items()) for text in texts.to_pylist()], kind)


def _of_rows(columns: Columns, stream: str) -> Any:
    import pyarrow as pa

    schema = events_schema()
    values: dict[str, Sequence[Any]] = {name: columns.column(position) for position, name in enumerate(COLUMNS)}
    values["event_id"] = [
        str(uuid.UUID(one)) if isinstance(one, str) else str(uuid.UUID(bytes=bytes(one))) for one in values["event_id"]
    ]
    values["headers"] = [None if text is None else list(decode_headers(text).items()) for text in values["headers"]]
    for name in ("available_at", "created_at"):
        values[name] = [moment(raw) for raw in values[name]]
    arrays = [pa.array(values[field.name], field.type) for field in schema if field.name != "stream"]
    arrays.append(pa.repeat(pa.scalar(stream), len(columns)))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)

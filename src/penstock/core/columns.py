"""Stored events column by column: whatever the store read, a column becomes a list on first access."""

from __future__ import annotations

import marshal
from collections.abc import Sequence
from typing import Any, Final, Protocol

# The columns of a stored event, in the order in which every store reads them. Rows of retried deliveries have
# five more: attempts, failures, last error, replays and attempts of earlier lives.
COLUMNS: Final = (
    "offset",
    "event_id",
    "event_type",
    "payload",
    "content_type",
    "headers",
    "metadata",
    "partition_key",
    "ordering_key",
    "available_at",
    "created_at",
)


class Columns(Protocol):
    """Events as a store read them."""

    def __len__(self) -> int:
        """Return the number of events."""

    @property
    def width(self) -> int:
        """The number of columns."""

    def column(self, position: int) -> Sequence[Any]:
        """Return one column as plain Python values."""

    def every(self, position: int, step: int) -> Sequence[Any]:
        """Return the values of every n-th event, without making all of them."""

    def alike(self, position: int, places: Sequence[int], end: int) -> list[tuple[int, Any]]:
        """Return (place, value) of the events before `end` that share a column's value with one of `places`.

        None equals nothing.
        """

    def nbytes(self) -> int:
        """Estimate the memory that the payloads take, in bytes."""

    def pack(self, first: int, last: int) -> tuple[str, Any]:
        """Serialize some of the events for another process on this machine; `unpack` reads them."""


class RowColumns:
    """Columns of rows."""

    __slots__ = ("_rows",)

    def __init__(self, rows: Sequence[Sequence[Any]]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def width(self) -> int:
        return len(self._rows[0]) if self._rows else len(COLUMNS)

    def column(self, position: int) -> Sequence[Any]:
        return [row[position] for row in self._rows]

    def every(self, position: int, step: int) -> Sequence[Any]:
        return [row[position] for row in self._rows[::step]]

    def alike(self, position: int, places: Sequence[int], end: int) -> list[tuple[int, Any]]:
        values = {self._rows[place][position] for place in places} - {None}
        found = enumerate(row[position] for row in self._rows[:end])
        return [(place, value) for place, value in found if value in values]

    def nbytes(self) -> int:
        return sum(len(row[3]) for row in self._rows)

    def pack(self, first: int, last: int) -> tuple[str, Any]:
        return "rows", marshal.dumps([tuple(row) for row in self._rows[first:last]])


class ArrowColumns:
    """Columns of an Arrow table."""

    __slots__ = ("_table",)

    def __init__(self, table: Any) -> None:
        self._table = table

    def __len__(self) -> int:
        return int(self._table.num_rows)

    @property
    def width(self) -> int:
        return int(self._table.num_columns)

    def column(self, position: int) -> Sequence[Any]:
        found: list[Any] = self._table.column(position).to_pylist()
        return found

    def every(self, position: int, step: int) -> Sequence[Any]:
        import pyarrow

        column = self._table.column(position)
        wanted = range(0, len(column), step)
        if column.null_count == len(column):
            return [None] * len(wanted)
        found: list[Any] = column.take(pyarrow.array(wanted, pyarrow.int64())).to_pylist()
        return found

    def alike(self, position: int, places: Sequence[int], end: int) -> list[tuple[int, Any]]:
        import pyarrow
        from pyarrow import compute

        column = self._table.column(position)
        values = column.take(pyarrow.array(places, pyarrow.int64())).drop_null()
        found = compute.indices_nonzero(compute.is_in(column.slice(0, end), value_set=values))
        return [*zip(found.to_pylist(), column.take(found).to_pylist(), strict=True)]

    def nbytes(self) -> int:
        return int(self._table.nbytes)

    def pack(self, first: int, last: int) -> tuple[str, Any]:
        import pyarrow

        sink = pyarrow.BufferOutputStream()
        with pyarrow.ipc.new_stream(sink, self._table.schema) as writer:
            writer.write_table(self._table.slice(first, last - first))
        return "arrow", sink.getvalue()


def unpack(kind: str, packed: Any) -> Columns:
    """Read what `pack` wrote."""
    if kind == "rows":
        return RowColumns(marshal.loads(packed))
    import pyarrow

    with pyarrow.ipc.open_stream(packed) as reader:
        return ArrowColumns(reader.read_all())

"""Events in hand, column by column: whatever the store read, a column becomes a list when somebody looks at it."""

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
    """What a store read."""

    def __len__(self) -> int:
        """How many events."""

    @property
    def width(self) -> int:
        """How many columns."""

    def column(self, position: int) -> Sequence[Any]:
        """One column as plain Python values."""

    def alike(self, position: int, places: Sequence[int], end: int) -> list[tuple[int, Any]]:
        """Of the first events, up to `end`, those that have a value of these `places` in a column, each with it. Those
        without a value are like nobody."""

    def nbytes(self) -> int:
        """About how much memory the payloads take."""

    def pack(self, first: int, last: int) -> tuple[str, Any]:
        """A part of the events for another process of this machine: what `unpack` takes."""


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
    """The other end of `pack`."""
    if kind == "rows":
        return RowColumns(marshal.loads(packed))
    import pyarrow

    with pyarrow.ipc.open_stream(packed) as reader:
        return ArrowColumns(reader.read_all())

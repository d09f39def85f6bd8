"""The contract of sinks: tasks stage rows, the settle moves them, `finish` completes what is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from penstock.core.lease import LeaseRow
from penstock.log.transact import Transaction

Move = Callable[[Transaction], None]


class Aside(NamedTuple):
    """What one task attempt has staged."""

    name: str
    rows: int


class SinkWriter(Protocol):
    """The writer of one pipeline's sink, on the driver."""

    without: tuple[str, ...]  # columns to drop with `_error`: they only identify the event

    def check(self, schema: Any) -> None:
        """Check that rows of this schema can be written; `InvalidPipeline` otherwise."""

    def write(self, rows: Any, piece: LeaseRow) -> list[Aside]:
        """Run the Spark job that stages the rows of a piece of a lease; return what counts."""

    def move(self, row: LeaseRow, aside: Sequence[Aside]) -> Move | None:
        """Return what the settle does with staged rows, in its transaction; None if nothing."""

    def finish(self) -> None:
        """Complete what settles, also those of a driver that died, left to do; safe to repeat."""

    def clean(self) -> None:
        """Drop what dead drivers and lost attempts staged."""


def put_aside(rows: Any, stage: Callable[[Iterator[Any]], Aside]) -> list[Aside]:
    """Run `stage` over the record batches of every partition; return what the successful attempts staged."""

    def task(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        name, count = stage(batches)
        yield pa.RecordBatch.from_arrays([pa.array([name]), pa.array([count], pa.int64())], names=["name", "count"])

    found = rows.mapInArrow(task, "name string, count bigint").collect()
    return [Aside(row["name"], row["count"]) for row in found if row["count"]]

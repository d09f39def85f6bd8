"""What every kind of sink does: its tasks put rows aside, the settle moves them, and the rest is finished behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from penstock.core.lease import LeaseRow
from penstock.log.transact import Transaction

Move = Callable[[Transaction], None]


class Aside(NamedTuple):
    """What one task attempt has put aside."""

    name: str
    rows: int


class SinkWriter(Protocol):
    """One sink of one pipeline, on the driver."""

    without: tuple[str, ...]  # columns that, beside `_error`, only say whose a row is

    def check(self, schema: Any) -> None:
        """Whether rows of this schema can be written; `InvalidPipeline` that says why not."""

    def write(self, rows: Any, piece: LeaseRow) -> list[Aside]:
        """Run the job that puts the rows of a piece of a lease aside; only the names of it come back."""

    def move(self, row: LeaseRow, aside: Sequence[Aside]) -> Move | None:
        """What the settle of the lease does with it; None if there is nothing to do."""

    def finish(self) -> None:
        """Finish what settles have left to do, here or in a driver that died."""

    def clean(self) -> None:
        """Drop what dead drivers and lost attempts left behind."""


def put_aside(rows: Any, stage: Callable[[Iterator[Any]], Aside]) -> list[Aside]:
    """Run `stage` over the record batches of every partition; returns what the attempts that count have put aside."""

    def task(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        name, count = stage(batches)
        yield pa.RecordBatch.from_arrays([pa.array([name]), pa.array([count], pa.int64())], names=["name", "count"])

    found = rows.mapInArrow(task, "name string, count bigint").collect()
    return [Aside(row["name"], row["count"]) for row in found if row["count"]]

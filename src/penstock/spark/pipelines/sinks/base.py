"""The contract of sinks: one Spark job stages a batch's rows and tells its errors, the settle moves what counts."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence, Set
from typing import Any, NamedTuple, Protocol, runtime_checkable

from penstock.core.lease import LeaseRow
from penstock.log.refused import Refused
from penstock.log.staging import Staged
from penstock.log.transact import Transaction
from penstock.spark.pipelines.failures import ERROR, OFFSET, TEXT_LENGTH
from penstock.spark.pipelines.read_once import attempt, reading_once

Move = Callable[[Transaction], None]


class Aside(NamedTuple):
    """What one task attempt has staged."""

    name: str
    rows: int
    partition: int | None = None


class Written(NamedTuple):
    """What one Spark job did: rows and errors come from the same attempts of its tasks."""

    aside: list[Aside]
    failed: dict[int, str]  # by offset: the errors of events that the function itself failed
    skipped: Set[int] | None  # partitions without a result; None if all of it is one result: see `read_once`


class SinkWriter(Protocol):
    """The writer of one pipeline's sink, on the driver."""

    def check(self, schema: Any) -> Sequence[str]:
        """Check that rows of this schema, which may have an `_error`, can be written; `InvalidPipeline` otherwise.

        Returns the columns that are written.
        """

    def write(self, rows: Any, piece: LeaseRow) -> Written:
        """Run the one Spark job that stages the rows of a piece of a lease. Rows with an `_error` are not staged."""

    def move(self, row: LeaseRow, aside: Sequence[Aside], failed: Set[int]) -> Move | None:
        """Return what the settle does with staged rows, but for those of failed events; None if nothing."""

    def finish(self) -> None:
        """Complete what settles, also those of a driver that died, left to do; safe to repeat."""

    def clean(self) -> None:
        """Drop what dead drivers and lost attempts staged."""


@runtime_checkable
class RefusingSink(Protocol):
    """A sink whose rows the database itself may refuse, in the settle."""

    def refused(self, aside: Sequence[Aside], failed: Set[int]) -> Refused | None:
        """Find the events whose staged rows are refused; None if their rows do not name them."""

    def try_out(self, aside: Sequence[Aside]) -> str | None:
        """Move staged rows and undo it; return what the database says if it refuses them."""


def staged(aside: Sequence[Aside]) -> list[Staged]:
    """Return what was staged in the database, by the attempts' ids."""
    return [Staged(uuid.UUID(one.name), one.rows) for one in aside]


def put_aside(rows: Any, stage: Callable[[Iterator[Any]], Aside]) -> Written:
    """Run `stage` over the record batches of every partition, without the rows that have an `_error`.

    Only what the successful attempt of a task says counts: its staged rows and its errors.
    """

    def task(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        failed: dict[int, str] = {}
        name, count, *_ = stage(_without_errors(batches, failed))
        place = TaskContext.get().partitionId()  # type: ignore[union-attr]  # a task has a context
        columns = [[name], [count], [place], [attempt()], [list(failed)], [list(failed.values())]]
        kinds = [pa.string(), pa.int64(), pa.int32(), pa.int32(), pa.list_(pa.int64()), pa.list_(pa.string())]
        arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, names=["name", "count", "place", "attempt", "offsets", "errors"])

    said = rows.mapInArrow(
        task, "name string, count bigint, place int, attempt int, offsets array<bigint>, errors array<string>"
    )
    with reading_once(said) as once:
        answers = said.collect()
    skipped = {row["place"] for row in answers if once and row["attempt"]}
    failed: dict[int, str] = {}
    aside = []
    for row in answers:
        if row["place"] in skipped:  # a function may make rows of nothing
            continue
        add_errors(failed, row["offsets"], row["errors"])
        if row["count"]:
            aside.append(Aside(row["name"], row["count"], row["place"]))
    return Written(aside, failed, skipped if once else None)


def _without_errors(batches: Iterator[Any], failed: dict[int, str]) -> Iterator[Any]:
    """Pass rows without an `_error` on, and note the errors of the others."""
    import pyarrow.compute as pc

    for batch in batches:
        if ERROR not in batch.schema.names:
            yield batch
            continue
        errors = batch.column(ERROR)
        if errors.null_count < len(batch):
            bad = batch.filter(pc.is_valid(errors))
            texts = pc.utf8_slice_codeunits(bad.column(ERROR).cast("string"), 0, TEXT_LENGTH)
            add_errors(failed, bad.column(OFFSET).to_pylist(), texts.to_pylist())
        good = batch.filter(pc.is_null(errors)) if errors.null_count < len(batch) else batch
        if len(good):
            yield good.drop_columns([ERROR])


def add_errors(failed: dict[int, str], offsets: Sequence[int], errors: Sequence[str]) -> None:
    """Keep one error of each event: the first by the alphabet, whatever the order of the rows."""
    for offset, error in zip(offsets, errors, strict=True):
        failed[offset] = min(error, failed.get(offset, error))

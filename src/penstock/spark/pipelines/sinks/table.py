"""Rows into a table of the user's: put aside as JSON by the tasks, moved by one INSERT in the settle."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from penstock.core.lease import LeaseRow
from penstock.errors import InvalidPipeline
from penstock.log import pipelines
from penstock.log.log import Log
from penstock.log.pipelines import PipelineStore, StagedRow
from penstock.log.staging import Staged
from penstock.sinks import Table
from penstock.spark.logs import log_at
from penstock.spark.pipelines.sinks.base import Aside, Move, put_aside

_ODD: Final = frozenset("\"'\\")  # in the name of a column


class TableWriter:
    """The sink `Table`."""

    without: tuple[str, ...] = ()

    def __init__(self, log: Log, safe_url: str, sink: Table) -> None:
        self._store = log.store
        self._staged = PipelineStore(log.store)
        self._safe_url = safe_url
        self._sink = sink
        self._columns: list[str] = []
        self._statement = ""

    def check(self, schema: Any) -> None:
        """The table must be there and take these columns; the database itself has the last word."""
        there = self._staged.columns(self._store.table_name(self._sink.name))
        if not there:
            raise InvalidPipeline(f"There is no table {self._sink.name!r} in the log's database.")
        names = [name for name in schema.names if name != "offset" or name in there]
        strangers = [name for name in names if name not in there or _ODD & {*name}]
        if strangers or not names:
            raise InvalidPipeline(
                f"The table {self._sink.name!r} has no column {', '.join(map(repr, strangers)) or 'of the result'}; "
                f"it has {', '.join(there)}."
            )
        missing = [key for key in self._sink.keys if key not in names]
        if missing:
            raise InvalidPipeline(f"The result has no column {missing[0]!r}, which is a key of the upsert.")
        self._columns = names
        binary = frozenset(field.name for field in schema.fields if field.dataType.typeName() == "binary")
        self._statement = self._store.insert_staged(self._sink.name, names, self._sink.keys, binary)
        refused = self._staged.check_statement(self._statement)
        if refused is not None:
            raise InvalidPipeline(f"The table {self._sink.name!r} does not take these rows: {refused}.")

    def write(self, rows: Any, piece: LeaseRow) -> list[Aside]:
        url, lease, columns = self._safe_url, piece.id, tuple(self._columns)

        def stage(batches: Iterator[Any]) -> Aside:
            store = log_at(url).store
            chunks = (_rows(one, columns, store.staged_rows) for one in batches)
            staged = PipelineStore(store).stage_rows(lease, chunks)
            return Aside(str(staged.attempt), staged.events)

        return put_aside(rows, stage)

    def move(self, row: LeaseRow, aside: Sequence[Aside]) -> Move | None:
        named = [Staged(uuid.UUID(one.name), one.rows) for one in aside]
        return (lambda tx: pipelines.move_rows(tx, self._statement, named)) if named else None

    def finish(self) -> None:
        """Nothing is left to do after the settle."""

    def clean(self) -> None:
        self._staged.drop_leftovers()


def _rows(
    batch: Any, columns: Sequence[str], encode: Callable[[Sequence[str], Sequence[Sequence[Any]]], list[bytes]]
) -> list[StagedRow]:
    """The rows of a record batch, as the store stages them."""
    offsets = batch.column("offset").to_pylist() if "offset" in batch.schema.names else [None] * len(batch)
    values = [batch.column(name).to_pylist(maps_as_pydicts="strict") for name in columns]
    return [StagedRow(offset, fields) for offset, fields in zip(offsets, encode(columns, values), strict=True)]

"""Rows into a table of the user's: put aside as JSON by the tasks, moved by one INSERT in the settle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from typing import Any, Final

from penstock.core.lease import LeaseRow
from penstock.core.target import Target
from penstock.errors import InvalidPipeline
from penstock.log import pipelines
from penstock.log.log import Log
from penstock.log.pipelines import PipelineStore, StagedRow
from penstock.log.refused import Refused, refused_rows, try_rows
from penstock.sinks import Table
from penstock.spark.logs import log_at
from penstock.spark.pipelines.failures import ERROR, OFFSET
from penstock.spark.pipelines.sinks.base import Aside, Move, Written, put_aside, staged

_ODD: Final = frozenset("\"'\\")  # in the name of a column


class TableWriter:
    """The sink `Table`."""

    def __init__(self, log: Log, safe_url: str, sink: Table) -> None:
        self._store = log.store
        self._staged = PipelineStore(log.store)
        self._safe_url = safe_url
        self._sink = sink
        self._columns: list[str] = []
        self._statement = ""

    def check(self, schema: Any) -> Sequence[str]:
        """The table must be there and take these columns; the database itself has the last word."""
        there = self._staged.columns(self._store.table_name(self._sink.name))
        if not there:
            raise InvalidPipeline(f"There is no table {self._sink.name!r} in the log's database.")
        names = [name for name in schema.names if name != ERROR and (name != OFFSET or name in there)]
        strangers = [name for name in names if name not in there or _ODD & {*name}]
        if strangers or not names:
            raise InvalidPipeline(
                f"The table {self._sink.name!r} has no column {', '.join(map(repr, strangers)) or 'of the result'}; "
                f"it has {', '.join(there)}."
            )
        self._check_roles(schema)
        self._columns = names
        binary = frozenset(field.name for field in schema.fields if field.dataType.typeName() == "binary")
        sink = self._sink
        self._statement = self._store.insert_staged(Target(sink.name, names, sink.keys, sink.add, sink.version, binary))
        refused = self._staged.check_statement(self._statement)
        if refused is not None:
            raise InvalidPipeline(f"The table {self._sink.name!r} does not take these rows: {refused}.")
        return names

    def _check_roles(self, schema: Any) -> None:
        """Keys, added columns and the version must be in the result, and what is added must be numbers."""
        from pyspark.sql.types import NumericType

        sink = self._sink
        for name in (*sink.keys, *sink.add, *([] if sink.version is None else [sink.version])):
            if name not in schema.names:
                raise InvalidPipeline(f"The result has no column {name!r}, which the {sink.mode} needs.")
        for name in sink.add:
            if not isinstance(schema[name].dataType, NumericType):
                kind = schema[name].dataType.simpleString()
                raise InvalidPipeline(f"The column {name!r} cannot be added up: it is {kind}, not a number.")

    def write(self, rows: Any, piece: LeaseRow) -> Written:
        url, lease, columns = self._safe_url, piece.id, tuple(self._columns)

        def stage(batches: Iterator[Any]) -> Aside:
            store = log_at(url).store
            chunks = (_rows(one, columns, store.staged_rows) for one in batches)
            done = PipelineStore(store).stage_rows(lease, chunks)
            return Aside(str(done.attempt), done.events)

        return put_aside(rows, stage)

    def move(self, row: LeaseRow, aside: Sequence[Aside], failed: Set[int]) -> Move | None:
        named = staged(aside)
        return (lambda tx: pipelines.move_rows(tx, self._statement, named, failed)) if named else None

    def refused(self, aside: Sequence[Aside], failed: Set[int]) -> Refused | None:
        return refused_rows(self._store, self._statement, staged(aside), failed)

    def try_out(self, aside: Sequence[Aside]) -> str | None:
        return try_rows(self._store, self._statement, staged(aside))

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

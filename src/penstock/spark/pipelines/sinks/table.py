"""Rows into a table of the user's: staged by the tasks, moved by one INSERT in the settle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Any, Final

from penstock.core.lease import LeaseRow
from penstock.core.target import StagingTable, Target
from penstock.errors import InvalidPipeline
from penstock.log import pipelines
from penstock.log.log import Log
from penstock.log.pipelines import PipelineStore
from penstock.log.refused import Refused, refused_rows, try_rows
from penstock.sinks import Table
from penstock.spark.logs import log_at
from penstock.spark.pipelines.failures import ERROR, OFFSET
from penstock.spark.pipelines.sinks.base import Aside, Move, Written, put_aside, staged

_FORMLESS: Final = ("interval", "variant", "geometry", "geography")
_ODD: Final = frozenset("\"'\\")  # in the name of a column


class TableWriter:
    """The sink `Table`."""

    def __init__(self, log: Log, safe_url: str, sink: Table) -> None:
        self._store = log.store
        self._staged = PipelineStore(log.store)
        self._safe_url = safe_url
        self._sink = sink
        self._table = StagingTable("", (), (), "", "")  # until it is checked

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
        kinds = [schema[name].dataType.simpleString() for name in names]
        sink = self._sink
        self._table = self._staged.staging_table(Target(sink.name, names, kinds, sink.keys, sink.add, sink.version))
        refused = self._staged.check_statement(self._table.move)
        if refused is not None:
            raise InvalidPipeline(f"The table {self._sink.name!r} does not take these rows: {refused}.")
        return names

    def _check_roles(self, schema: Any) -> None:
        """Keys, added columns and the version must be in the result, and what is added must be numbers."""
        from pyspark.sql.types import NumericType

        for field in schema.fields:
            if (odd := _without_a_form(field.dataType)) is not None:
                raise InvalidPipeline(f"The column {field.name!r} is {odd}, which no table takes: cast it first.")
        sink = self._sink
        for name in (*sink.keys, *sink.add, *([] if sink.version is None else [sink.version])):
            if name not in schema.names:
                raise InvalidPipeline(f"The result has no column {name!r}, which the {sink.mode} needs.")
        for name in sink.add:
            if not isinstance(schema[name].dataType, NumericType):
                kind = schema[name].dataType.simpleString()
                raise InvalidPipeline(f"The column {name!r} cannot be added up: it is {kind}, not a number.")

    def write(self, rows: Any, piece: LeaseRow) -> Written:
        url, lease, table = self._safe_url, piece.id, self._table

        def stage(batches: Iterator[Any]) -> Aside:
            done = PipelineStore(log_at(url).store).stage_rows(lease, table, batches)
            return Aside(str(done.attempt), done.events)

        return put_aside(rows, stage)

    def move(self, row: LeaseRow, aside: Sequence[Aside], failed: Set[int]) -> Move | None:
        named = staged(aside)
        return (lambda tx: pipelines.move_rows(tx, self._table, named, failed)) if named else None

    def refused(self, aside: Sequence[Aside], failed: Set[int]) -> Refused | None:
        return refused_rows(self._store, self._table, staged(aside), failed)

    def try_out(self, aside: Sequence[Aside]) -> str | None:
        return try_rows(self._store, self._table, staged(aside))

    def finish(self) -> None:
        """Nothing is left to do after the settle."""

    def clean(self) -> None:
        self._staged.drop_leftovers()


def _without_a_form(kind: Any) -> str | None:
    """Return the type, within a type, of values that cannot be staged."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, ArrayType):
        return _without_a_form(kind.elementType)
    if isinstance(kind, MapType):
        return _without_a_form(kind.valueType)
    if isinstance(kind, StructType):
        return next((odd for field in kind.fields if (odd := _without_a_form(field.dataType)) is not None), None)
    name = str(kind.simpleString())
    return name if name.startswith(_FORMLESS) else None

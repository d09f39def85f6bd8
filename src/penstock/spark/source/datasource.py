"""The data source behind `format("penstock")`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

from penstock.errors import InvalidOption
from penstock.spark.source import options, shapes

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


class PenstockDataSource(DataSource):
    """The data source: reads from a log, and appends to it.

    Options everywhere: `url` (default: $PENSTOCK_URL) and `stream`.

    `spark.read`: `what` (events, deliveries, dead, attempts), `group`, `columns`, `partitions`, `after`, `upto`,
    `since`, `until`, `types`, `state`, `pushdown`, `archive` (no: only what is in the log).
    `spark.readStream`: `group`, `maxRowsPerTrigger`, `startingPosition`, `partitions`, `onClaimLost`.
    `df.write`, `df.writeStream`: `type`, `ordering_key`; `df.write` also `batch_id`.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "penstock"

    def schema(self) -> str:
        """Return the columns of a read; check options here, so that `load()` fails and not the first action."""
        options.check_known(self.options, dict.fromkeys([*options.READ, *options.READ_STREAM]), "The data source")
        what = options.kind_of(self.options)
        if "columns" not in self.options:
            return shapes.DDL[what]
        columns = options.listed(self.options["columns"])
        known = shapes.types_of(what)
        for name in columns:
            if name not in known:
                raise InvalidOption(f"{what} have no column {name!r}; they have {', '.join(known)}.")
        if not columns or len(set(columns)) < len(columns):
            raise InvalidOption("The option 'columns' names columns, each once, with commas between them.")
        return shapes.ddl_of(what, columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Make the batch reader.

        Sessions without filter pushdown refuse a reader that accepts filters, so only the pushdown process gets one.
        """
        from penstock.spark.source import batch

        wanted = options.parse_read(self.options)
        pushing = wanted.pushdown and _PUSHDOWN_WORKER in sys.modules
        return (batch.PushingReader if pushing else batch.PenstockReader)(wanted, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Make the reader of a group as a stream."""
        from penstock.spark.source.stream import PenstockStreamReader

        reader: DataSourceStreamReader = PenstockStreamReader(dict(self.options), schema)
        return reader

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Make the writer of a DataFrame."""
        from penstock.spark.source.writer import PenstockBatchWriter

        _refuse(overwrite, 'use mode("append")')
        return PenstockBatchWriter(options.parse_write(self.options, streaming=False), _names(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Make the writer of a streaming query's micro-batches."""
        from penstock.spark.source.writer import PenstockStreamWriter

        _refuse(overwrite, 'use outputMode("append"), or foreachBatch')
        return PenstockStreamWriter(options.parse_write(self.options, streaming=True), _names(schema))


def _refuse(overwrite: bool, instead: str) -> None:
    if overwrite:
        raise InvalidOption(f"A log is append-only and cannot be overwritten: {instead}.")


def _names(schema: Any) -> list[str]:
    names: list[str] = schema.fieldNames()
    return names

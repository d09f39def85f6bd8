"""From the declaration of a sink to what writes it."""

from __future__ import annotations

from penstock.engine.pipeline import Sink
from penstock.errors import InvalidPipeline
from penstock.log.log import Log
from penstock.sinks import ForeachBatch, Parquet, Stream, Table
from penstock.spark.foreach_sink import ForeachWriter
from penstock.spark.parquet_sink import ParquetWriter
from penstock.spark.sink import SinkWriter
from penstock.spark.stream_sink import StreamWriter
from penstock.spark.table_sink import TableWriter


def writer_for(log: Log, safe_url: str, sink: Sink) -> SinkWriter:
    """Who writes into this sink."""
    match sink:
        case Table():
            return TableWriter(log, safe_url, sink)
        case Stream():
            return StreamWriter(log, safe_url, sink)
        case Parquet():
            return ParquetWriter(log, safe_url, sink)
        case ForeachBatch():
            return ForeachWriter(sink)
    raise InvalidPipeline(f"{sink!r} is a sink of a kind that Spark cannot write.")

"""Choose the writer of a declared sink."""

from __future__ import annotations

from penstock.declare.pipeline import Sink
from penstock.errors import InvalidPipeline
from penstock.log.log import Log
from penstock.sinks import ForeachBatch, Parquet, Stream, Table
from penstock.spark.pipelines.sinks.base import SinkWriter
from penstock.spark.pipelines.sinks.foreach import ForeachWriter
from penstock.spark.pipelines.sinks.parquet import ParquetWriter
from penstock.spark.pipelines.sinks.stream import StreamWriter
from penstock.spark.pipelines.sinks.table import TableWriter


def writer_for(log: Log, safe_url: str, sink: Sink) -> SinkWriter:
    """Make the writer of a sink; `InvalidPipeline` for an unknown kind."""
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

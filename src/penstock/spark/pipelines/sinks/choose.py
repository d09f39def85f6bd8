"""Choose the writer of a declared sink."""

from __future__ import annotations

from functools import partial
from typing import Any
from urllib.parse import urlsplit

from penstock.declare.pipeline import Pipeline, Sink
from penstock.errors import InvalidPipeline
from penstock.log.log import Log
from penstock.log.pipelines import PipelineStore
from penstock.sinks import ForeachBatch, Parquet, Stream, Table
from penstock.spark.pipelines.sinks.base import SinkWriter
from penstock.spark.pipelines.sinks.folders import ArrowFolder
from penstock.spark.pipelines.sinks.foreach import ForeachWriter
from penstock.spark.pipelines.sinks.hadoop_folder import HadoopFolder, hadoop_knows
from penstock.spark.pipelines.sinks.hadoop_parquet import HadoopParquetWriter
from penstock.spark.pipelines.sinks.late_names import Folder, LateNames
from penstock.spark.pipelines.sinks.parquet import ParquetWriter
from penstock.spark.pipelines.sinks.stream import StreamWriter
from penstock.spark.pipelines.sinks.table import TableWriter

_ARROW = ("", "file", "s3")  # written by pyarrow, whatever Spark knows


def pipeline_writer(log: Log, safe_url: str, pipeline: Pipeline, spark: Any) -> SinkWriter:
    """Make the writer of a pipeline's sink; `InvalidPipeline` for an unknown kind."""
    sink = pipeline.sink
    if not isinstance(sink, Parquet):
        return writer_for(log, safe_url, sink)
    group, open_folder = (pipeline.stream, pipeline.group), partial(_open_folder, spark)
    names = LateNames(PipelineStore(log.store), safe_url, group, sink.folder, open_folder)
    if _is_hadoops(spark, sink.folder):
        return HadoopParquetWriter(spark, sink, names)
    return ParquetWriter(sink, spark.sparkContext.master, names)


def writer_for(log: Log, safe_url: str, sink: Sink) -> SinkWriter:
    """Make the writer of a sink that needs to know nothing of its pipeline; `InvalidPipeline` for an unknown kind."""
    match sink:
        case Table():
            return TableWriter(log, safe_url, sink)
        case Stream():
            return StreamWriter(log, safe_url, sink)
        case ForeachBatch():
            return ForeachWriter(sink)
    raise InvalidPipeline(f"{sink!r} is a sink of a kind that Spark cannot write.")


def _is_hadoops(spark: Any, path: str) -> bool:
    scheme = urlsplit(path).scheme
    return scheme not in _ARROW and hadoop_knows(spark, scheme)


def _open_folder(spark: Any, path: str) -> Folder:
    return HadoopFolder(spark, path) if _is_hadoops(spark, path) else ArrowFolder(path)

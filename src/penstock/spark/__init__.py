"""Penstock on Apache Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def register(spark: SparkSession) -> None:
    """Register `format("penstock")` with a session. If `pyspark_penstock` is installed, Spark finds it by itself."""
    from penstock.spark.machine import tell_master
    from penstock.spark.source.datasource import PenstockDataSource

    tell_master(spark)
    spark.dataSource.register(PenstockDataSource)


def events(spark: SparkSession, url: str, stream: str) -> DataFrame:
    """Return the events of a stream, archived ones included, of which Spark's own Parquet reader reads the files.

    What is read from files and what from the log is decided now. Like `format("penstock")`, but faster where most of
    the stream is archived in a directory; archives in object storage are read by the data source itself.
    """
    from penstock.spark.source.native import events as united

    register(spark)
    found: DataFrame = united(spark, url, stream)
    return found


def outcomes(rows: DataFrame, batch_id: int, errors: Mapping[int, Any] | None = None) -> DataFrame:
    """Record which events of a micro-batch failed; return the rows of all others. For use inside of `foreachBatch`.

    Without `errors`, an event failed if one of its rows has a non-null `_error`; `errors` gives them by offset, as a
    text or an exception. Failed events are retried, or die, by the policy of their group; the query goes on.
    """
    from penstock.spark.source.outcomes import outcomes as recorded

    found: DataFrame = recorded(rows, batch_id, errors)
    return found

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


def outcomes(rows: DataFrame, batch_id: int, errors: Mapping[int, Any] | None = None) -> DataFrame:
    """Record which events of a micro-batch failed; return the rows of all others. For use inside of `foreachBatch`.

    Without `errors`, an event failed if one of its rows has a non-null `_error`; `errors` gives them by offset, as a
    text or an exception. Failed events are retried, or die, by the policy of their group; the query goes on.
    """
    from penstock.spark.source.outcomes import outcomes as recorded

    found: DataFrame = recorded(rows, batch_id, errors)
    return found

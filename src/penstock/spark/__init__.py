"""Penstock on Apache Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make `format("penstock")` known to a session. Where `pyspark_penstock` is installed Spark finds it by itself."""
    from penstock.spark.machine import tell_master
    from penstock.spark.source.datasource import PenstockDataSource

    tell_master(spark)
    spark.dataSource.register(PenstockDataSource)

"""Penstock on Apache Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Register `format("penstock")` with a session. If `pyspark_penstock` is installed, Spark finds it by itself."""
    from penstock.spark.machine import tell_master
    from penstock.spark.source.datasource import PenstockDataSource

    tell_master(spark)
    spark.dataSource.register(PenstockDataSource)

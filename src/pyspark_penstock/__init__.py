"""Spark looks for packages of this kind of name, and registers the data source in them by itself."""

from penstock.spark.source.datasource import PenstockDataSource as DefaultSource

__all__ = ["DefaultSource"]

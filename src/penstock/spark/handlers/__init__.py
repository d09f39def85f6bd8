"""Handlers on Spark: time slices in Spark's slots."""

"""Handlers on Spark: slices of time in Spark's slots."""

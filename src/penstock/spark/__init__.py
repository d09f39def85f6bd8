"""Penstock on Apache Spark."""

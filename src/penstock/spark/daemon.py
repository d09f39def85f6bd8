"""Spark's Python daemon with our modules loaded: the workers it forks have them from the start.

A worker whose function raised is replaced, and a new one that imports pyarrow and the drivers first takes seconds. A
batch with something poisonous in it costs dozens of them.
"""

from __future__ import annotations

import importlib
from contextlib import suppress

from pyspark.daemon import manager

_WANTED = ("pyarrow", "pandas", "orjson", "psycopg", "psycopg_pool", "adbc_driver_postgresql.dbapi", "pyspark.worker")
OURS = ("penstock", "penstock.spark.arrow", "penstock.spark.pipelines.sinks.table")

if __name__ == "__main__":
    for _name in (*_WANTED, *OURS):
        with suppress(ImportError):  # what is not installed is not needed
            importlib.import_module(_name)
    manager()

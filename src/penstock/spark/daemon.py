"""Spark's Python daemon with our modules preloaded, so that forked workers have them from the start.

Spark replaces a worker whose function raised, and importing pyarrow and the drivers takes seconds. A batch with a
poisonous event costs dozens of workers.
"""

from __future__ import annotations

import gc
import importlib
from contextlib import suppress

from pyspark.daemon import manager

_WANTED = (
    *("pyarrow.compute", "pandas", "orjson", "psycopg", "psycopg_pool", "adbc_driver_postgresql.dbapi"),
    *("psycopg_binary._uuid", "pyspark.worker"),
)
OURS = ("penstock", "penstock.spark.arrow", "penstock.spark.pipelines.sinks.table", "penstock.log.open")

if __name__ == "__main__":
    for _name in (*_WANTED, *OURS):
        with suppress(ImportError):  # not installed, so not needed
            importlib.import_module(_name)
    with suppress(ImportError):
        importlib.import_module("penstock.log.open").preload_postgres()
    with suppress(ImportError, AttributeError):  # of another version of Spark: searches then have no hint
        importlib.import_module("penstock.spark.failing_rows").install()
    gc.freeze()  # workers run the collector after every task: 40 ms, if it has to look at all these modules
    manager()

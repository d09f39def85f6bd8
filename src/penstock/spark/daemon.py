"""Spark's Python daemon, quicker: workers are forked with our modules, answer at once, and need no import caches.

Spark replaces a worker whose function raised, and importing pyarrow and the drivers takes seconds. A batch with a
poisonous event costs dozens of workers, and every batch a handful of tasks.
"""

from __future__ import annotations

import gc
import importlib
import socket
import zipimport
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pyspark import daemon

_WANTED = (
    *("pyarrow.compute", "pandas", "orjson", "psycopg", "psycopg_pool", "adbc_driver_postgresql.dbapi"),
    *("psycopg_binary._uuid", "pyspark.worker"),
)
OURS = ("penstock", "penstock.spark.arrow", "penstock.spark.pipelines.sinks.table", "penstock.log.open")


def load_modules() -> None:
    """Import what tasks need; what is not installed is not needed."""
    for name in (*_WANTED, *OURS):
        with suppress(ImportError):
            importlib.import_module(name)
    with suppress(ImportError):
        importlib.import_module("penstock.log.open").preload_postgres()


def keep_zip_directories() -> None:
    """Do not read the directories of zip files again for every new worker.

    Workers drop import caches. Spark's own Python code is a zip file with an entry in these caches for each of its
    packages, and reading them anew took 150 ms. A zip file on Python's path does not change; those that a run adds are
    new to it.
    """
    zipimport.zipimporter.invalidate_caches = lambda self: None  # type: ignore[method-assign]


def answer_at_once(worker: Callable[[socket.socket, bool], int]) -> Callable[[socket.socket, bool], int]:
    """Have workers confirm what they receive, and send what they write, without delay.

    JVM and worker exchange small messages before and after each task. The JVM sends the second one when the first is
    confirmed, for which the kernel otherwise waits 40 ms, in case there is something to send along.
    """

    def quick(connection: socket.socket, authenticated: bool) -> int:
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if hasattr(socket, "TCP_QUICKACK"):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return worker(connection, authenticated)

    return quick


def note_failing_rows() -> None:
    """See `failing_rows`; with another version of Spark, searches have no hints."""
    with suppress(ImportError, AttributeError):
        importlib.import_module("penstock.spark.failing_rows").install()


if __name__ == "__main__":
    keep_zip_directories()
    load_modules()
    note_failing_rows()
    pyspark_daemon: Any = daemon
    pyspark_daemon.worker = answer_at_once(pyspark_daemon.worker)
    gc.freeze()  # workers run the collector after every task: 40 ms, if it has to look at all these modules
    daemon.manager()

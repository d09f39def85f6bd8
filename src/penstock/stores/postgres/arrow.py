"""Reading a lease as Arrow: the driver fills columns while Python does something else. Needs the extra `arrow`."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

from psycopg import sql

from penstock.core import moments
from penstock.core.columns import ArrowColumns
from penstock.errors import StoreUnavailable

FROM_EVENTS = 500  # below this, rows are quicker
_PLACEHOLDER = re.compile(r"%\((\w+)\)s")
_RAW_TIME = re.compile(r"timestamptz_send\(([\w.]+)\)")
# A time beyond what Python and Spark know (infinity, the year 20000) becomes the nearest that they do.
_FIRST, _LAST = (f"timestamptz '{moments.EARLIEST.isoformat()}'", f"timestamptz '{moments.LATEST.isoformat()}'")
_KNOWN_TIME = rf"case when \1 > {_LAST} then {_LAST} when \1 < {_FIRST} then {_FIRST} else \1 end"
_RAW_ID = re.compile(r"uuid_send\(([\w.]+)\)")
# The log lies on disk in the order of its offsets, and so does its index: read along the index, it needs no sorting.
# The server does not know (it keeps no statistics of streams) and would sort every range on disk.
_ALONG_THE_INDEX = "set local enable_bitmapscan = off"


@cache
def available() -> bool:
    """Whether the driver is installed."""
    return all(importlib.util.find_spec(name) for name in ("adbc_driver_postgresql", "pyarrow"))


def load() -> None:
    """Import the driver and what it reads into: it takes a moment."""
    for name in ("adbc_driver_postgresql.dbapi", "pyarrow"):
        importlib.import_module(name)


def literal(statement: str, params: Mapping[str, Any]) -> str:
    """The statement with its values in it: with parameters the driver would not stream."""
    return _PLACEHOLDER.sub(lambda found: sql.quote(params[found[1]]), statement)


def plain(statement: str) -> str:
    """A reading statement with times and ids as the database has them, not as raw bytes."""
    return _RAW_TIME.sub(_KNOWN_TIME, _RAW_ID.sub(r"\1::text", statement))


class ArrowReader:
    """A few connections of the Arrow driver, made when they are needed; who needs one more waits."""

    def __init__(self, url: str, safe_url: str, most: int) -> None:
        self._places = threading.BoundedSemaphore(most)
        self._url = url
        self._safe_url = safe_url
        self._lock = threading.Lock()
        self._free: list[tuple[int, Any]] = []

    def read(self, statement: str) -> ArrowColumns:
        """Run a SELECT in a transaction of its own: all its steps then stay on one connection of a pooler, too."""
        with self._lend() as connection:
            with connection.cursor() as cursor:
                cursor.execute(_ALONG_THE_INDEX)
                cursor.execute(statement)
                table = cursor.fetch_arrow_table()
            connection.rollback()
        return ArrowColumns(table)

    def stream(self, statement: str) -> Iterator[Any]:
        """Run a SELECT and hand its record batches out as they come."""
        with self._lend() as connection:
            with connection.cursor() as cursor:
                cursor.execute(_ALONG_THE_INDEX)
                cursor.execute(statement)
                yield from cursor.fetch_record_batch()
            connection.rollback()

    @contextmanager
    def _lend(self) -> Iterator[Any]:
        with self._places, self._connected() as connection:
            yield connection

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        from adbc_driver_postgresql import dbapi

        try:
            connection = self._taken() or dbapi.connect(self._url)
        except dbapi.Error as error:
            raise StoreUnavailable(f"Cannot connect to {self._safe_url}: {_words(error)}.") from error
        try:
            yield connection
        except dbapi.Error as error:
            with suppress(dbapi.Error):
                connection.close()
            raise StoreUnavailable(f"The connection to {self._safe_url} broke: {_words(error)}.") from error
        except BaseException:
            with suppress(dbapi.Error):
                connection.close()
            raise
        with self._lock:
            self._free.append((os.getpid(), connection))

    def _taken(self) -> Any | None:
        with self._lock:
            while self._free:
                owner, connection = self._free.pop()
                if owner == os.getpid():  # what a parent process opened is not ours
                    return connection
        return None

    def close(self) -> None:
        """Close what nobody uses."""
        while (connection := self._taken()) is not None:
            connection.close()


def _words(error: Exception) -> str:
    return str(error).strip().rstrip(".").partition("\n")[0]

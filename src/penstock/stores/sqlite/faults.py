"""What SQLite's errors mean, and patience with those that pass."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from penstock.core.limits import BUSY_SECONDS
from penstock.errors import IllegalTransition, LeaseLost, SchemaMissing, StoreBusy, StoreClosed, StoreUnavailable

T = TypeVar("T")

READONLY, IOERR, FULL = sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_BROKEN = frozenset(
    {
        READONLY,
        IOERR,
        FULL,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_NOTADB,
    }
)
_FIRST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.02


def code_of(error: BaseException) -> int:
    """The primary result code of an error; 0 where `sqlite3` itself raised it."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_the_stores(error: BaseException) -> bool:
    """Whether an error is the database's own trouble rather than the statement's fault."""
    return code_of(error) in _BUSY | _BROKEN


def patiently(work: Callable[[], T]) -> T:
    """Run something that another writer may delay; pauses are random, so that two never keep colliding."""
    deadline = time.monotonic() + BUSY_SECONDS
    pause = _FIRST_PAUSE
    while True:
        try:
            return work()
        except sqlite3.OperationalError as error:
            if code_of(error) not in _BUSY:
                raise
            if time.monotonic() >= deadline:
                raise StoreBusy(f"Another process wrote to the file for {BUSY_SECONDS:.0f} s.") from error
        time.sleep(random.uniform(pause / 4, pause))
        pause = min(pause * 1.5, _LONGEST_PAUSE)


@contextmanager
def named(path: str) -> Iterator[None]:
    """SQLite's errors become Penstock's."""
    try:
        yield
    except sqlite3.Error as error:
        text, code = str(error), code_of(error)
        if code in _BUSY:
            raise StoreBusy(f"SQLite gave up waiting: {text}.") from error
        if code in _BROKEN:
            raise StoreUnavailable(f"Cannot use {path}: {text}.") from error
        if text.startswith("no such table: penstock_"):
            raise SchemaMissing(f"There is no Penstock schema in {path}.") from error
        if text == "penstock: the lease has expired":
            raise LeaseLost("The lease expired before its outcome was written; nothing was written.") from error
        if text.startswith("penstock:") and ("not a transition" in text or "cannot be" in text):
            raise IllegalTransition(text) from error
        if "closed database" in text:
            raise StoreClosed from error
        raise

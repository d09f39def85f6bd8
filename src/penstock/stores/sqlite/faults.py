"""What SQLite's errors mean, and patience with those that pass."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from penstock.core.limits import BUSY_SECONDS
from penstock.errors import (
    AppendOnly,
    IllegalTransition,
    InvalidInput,
    LeaseLost,
    PenstockError,
    SchemaMissing,
    StoreBusy,
    StoreClosed,
    StoreReadOnly,
    StoreUnavailable,
)
from penstock.stores.base import Conflict

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


def is_undecodable(error: BaseException) -> bool:
    """Whether a text in the file is no UTF-8: SQLite stores any bytes as text."""
    return isinstance(error, sqlite3.OperationalError) and str(error).startswith("Could not decode to UTF-8")


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


# What the triggers say, by a part of it: RAISE has no codes.
_LAW: tuple[tuple[str, type[PenstockError]], ...] = (
    ("the lease has expired", LeaseLost),
    ("not a transition", IllegalTransition),
    ("cannot become", IllegalTransition),
    ("cannot be", IllegalTransition),
    ("append-only", AppendOnly),
    ("cannot change", AppendOnly),
    ("never decrease", AppendOnly),
    ("change with its state only", AppendOnly),
    ("if and only if", InvalidInput),
    (" must ", InvalidInput),
)


@contextmanager
def named(path: str) -> Iterator[None]:
    """SQLite's errors become Penstock's: the one place that gives them their names."""
    try:
        yield
    except (sqlite3.Error, UnicodeEncodeError, OverflowError) as error:
        if is_undecodable(error):
            raise Conflict(str(error)) from error  # the next try reads it
        found = meaning(error, path)
        if found is None:
            raise
        raise found from error


def meaning(error: Exception, path: str) -> PenstockError | None:
    """The error as Penstock names it; None if it has no name for it."""
    if not isinstance(error, sqlite3.Error):
        return InvalidInput(f"A value cannot be stored: {error}.")
    text, code = str(error), code_of(error)
    if code in _BUSY:
        return StoreBusy(f"SQLite gave up waiting: {text}.")
    if code in _BROKEN:
        kind = StoreReadOnly if code == READONLY else StoreUnavailable
        return kind(f"Cannot {'write to' if code == READONLY else 'use'} {path}: {text}.")
    if text.startswith("no such table: penstock_"):
        return SchemaMissing(f"There is no Penstock schema in {path}.")
    if text.startswith("penstock:"):
        return next((kind(text) for part, kind in _LAW if part in text), None)
    return StoreClosed() if "closed database" in text else None

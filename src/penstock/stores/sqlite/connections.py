"""One connection a thread, and none across a fork.

SQLite keeps the locks of a file in the memory of the process. A forked child would inherit that memory but not the
locks, and believe that it holds what it does not. So a process that forks first closes its idle connections; both
sides open new ones when they need them.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote
from weakref import WeakSet

from penstock.errors import StoreClosed, StoreUnavailable
from penstock.stores.sqlite.faults import is_undecodable, named, patiently

_BUSY_TIMEOUT = 0.01  # seconds within SQLite; the patience is ours (see faults.patiently)
_FORK_WAIT = 5.0  # seconds a fork waits for the transactions of other threads
_WAL_KEPT = 1024 * 1024  # bytes the -wal file is cut down to once all of it was checkpointed
_OLDEST = (3, 35, 0)  # RETURNING

# Held while a connection is opened or closed, and during a fork: a child would inherit a lock of SQLite's that another
# thread has, and wait for it without end. The collector may close a connection in the middle of either.
_gate = threading.RLock()


class Held:
    """A connection and who uses it. It is closed when its thread ends, for then nothing refers to it any more."""

    __slots__ = ("__weakref__", "busy", "connection", "once", "pid", "thread")

    def __init__(self, connection: sqlite3.Connection, once: bool) -> None:
        self.connection: sqlite3.Connection | None = connection
        self.once = once  # for one use: the file may only be read, at the moment
        self.busy = True
        self.pid = os.getpid()
        self.thread = threading.get_ident()

    def close(self) -> None:
        with _gate:
            connection, self.connection = self.connection, None
            if connection is None:
                return
            if self.pid == os.getpid():
                connection.close()
                return
        # Inherited in the middle of a transaction: not even closing it is safe, so it is never freed.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))

    __del__ = close


_all: WeakSet[Held] = WeakSet()


def _unhex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def _readable(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def _before_fork() -> None:
    _gate.acquire()
    deadline = time.monotonic() + _FORK_WAIT
    for held in list(_all):
        while held.busy and held.thread != threading.get_ident() and time.monotonic() < deadline:
            time.sleep(0.001)
        if not held.busy:
            held.close()


os.register_at_fork(before=_before_fork, after_in_parent=_gate.release, after_in_child=_gate.release)


class Connections:
    """The connections to one file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._closed = False
        self._lenient = False  # text was met that is no UTF-8, written by other means: read it all the same, and slowly
        self._local = threading.local()
        self._mine: WeakSet[Held] = WeakSet()

    @contextmanager
    def lend(self) -> Iterator[sqlite3.Connection]:
        """This thread's connection, or a second one while the first is in a transaction."""
        held, new = self._take()
        try:
            assert held.connection is not None
            if self._lenient:
                held.connection.text_factory = _readable
            if new:
                self._prepare(held.connection, read_only=held.once)
            yield held.connection
            keep = not held.once and not held.connection.in_transaction
        except BaseException as error:
            self._lenient = self._lenient or is_undecodable(error)
            keep = not (new or held.once) and held.connection is not None and not held.connection.in_transaction
            raise
        finally:
            held.busy = False
            if self._closed or not keep:
                held.close()

    def _take(self) -> tuple[Held, bool]:
        with _gate:
            if self._closed:
                raise StoreClosed
            known = [one for one in getattr(self._local, "held", ()) if one.connection and one.pid == os.getpid()]
            self._local.held = known
            for held in known:
                if not held.busy:
                    held.busy = True
                    return held, False
            read_only = self._read_only()
            held = Held(self._connect(read_only), read_only)
            known.append(held)
            self._mine.add(held)
            _all.add(held)
            return held, True

    def _connect(self, read_only: bool) -> sqlite3.Connection:
        if sqlite3.sqlite_version_info < _OLDEST:
            raise StoreUnavailable(f"SQLite {sqlite3.sqlite_version} is too old: Penstock needs 3.35 or newer.")
        folder = os.path.dirname(self.path)
        if not os.path.isdir(folder):
            raise StoreUnavailable(f"Cannot open {self.path}: there is no directory {folder}.")
        with named(self.path):
            return self._connect_read_only() if read_only else self._open(self.path)

    def _open(self, name: str, *, uri: bool = False) -> sqlite3.Connection:
        return sqlite3.connect(
            name,
            timeout=_BUSY_TIMEOUT,
            isolation_level=None,
            check_same_thread=False,  # close() and fork close the connections of other threads
            cached_statements=256,
            uri=uri,
        )

    def _read_only(self) -> bool:
        """A file that may only be read, or that lies where nothing may be written: it can be looked at."""
        writable = os.access(self.path, os.W_OK) and os.access(os.path.dirname(self.path), os.W_OK)
        return os.path.exists(self.path) and not writable

    def _connect_read_only(self) -> sqlite3.Connection:
        """SQLite shares a write-ahead log through files beside the database. Where they are not there and cannot be
        made, nobody is writing: the file is read as it is, by a connection for one use."""
        name = f"file:{quote(self.path)}?mode=ro"
        connection = self._open(name, uri=True)
        try:
            connection.execute("select 1 from sqlite_master limit 1").fetchall()
        except sqlite3.OperationalError:
            connection.close()
            wal = f"{self.path}-wal"
            if os.path.exists(wal) and os.path.getsize(wal):
                raise  # commits lie in it that could not be seen
            return self._open(f"{name}&immutable=1", uri=True)
        return connection

    def _prepare(self, connection: sqlite3.Connection, *, read_only: bool) -> None:
        with named(self.path):
            # Checkpoints are ours (see checkpoint.py). No mmap: a truncated file would kill the process.
            for setting in (
                "synchronous = full",
                "wal_autocheckpoint = 0",
                f"journal_size_limit = {_WAL_KEPT}",
                "cache_size = -16000",
                "temp_store = memory",
                "mmap_size = 0",
            ):
                connection.execute(f"pragma {setting}").close()
            connection.create_function("penstock_unhex", 1, _unhex, deterministic=True)  # SQLite has one since 3.41
            if read_only:
                return
            mode = patiently(lambda: connection.execute("pragma journal_mode").fetchone()[0])
            if mode != "wal":
                mode = patiently(lambda: connection.execute("pragma journal_mode = wal").fetchone()[0])
            if mode != "wal":
                raise StoreUnavailable(f"Cannot use {self.path}: the file system allows no write-ahead log.")

    def close(self) -> None:
        """Close what is idle now, and the rest when its transaction ends."""
        with _gate:
            self._closed = True
            for held in list(self._mine):
                if not held.busy:
                    held.close()

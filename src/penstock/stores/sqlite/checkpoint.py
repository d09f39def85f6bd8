"""Checkpoints: one at a time over all processes.

SQLite up to 3.51.2 can corrupt the file when two connections checkpoint while one commits. Automatic checkpoints are
therefore off, and whoever holds a lock file does it after a commit that finds the log long.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time

LONG = 4 * 1024 * 1024  # bytes of the -wal file
_AGAIN = 1.0  # seconds until the next try where a reader kept the last one from finishing


class Checkpointer:
    """Decides after each commit of this process."""

    def __init__(self, path: str) -> None:
        self._wal = f"{path}-wal"
        self._lock = f"{path}-checkpoint.lock"
        self._tried_size = 0
        self._tried_at = 0.0

    def after_commit(self, connection: sqlite3.Connection) -> None:
        """Checkpoint if the log is long, and has grown (or time has passed) since the last try."""
        try:
            size = os.stat(self._wal).st_size
        except OSError:
            return
        now = time.monotonic()
        if size < LONG or (size - self._tried_size in range(LONG) and now - self._tried_at < _AGAIN):
            return
        self._tried_size, self._tried_at = size, now
        self._run(connection)

    def _run(self, connection: sqlite3.Connection) -> None:
        try:
            lock = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError:
            return  # it can wait: the log is only longer than it need be
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            connection.execute("pragma wal_checkpoint(passive)").fetchall()
        except (BlockingIOError, sqlite3.Error):
            pass  # somebody else is at it, or a broken disk: the commit stands, and the next statement will tell
        finally:
            os.close(lock)

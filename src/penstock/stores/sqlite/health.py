"""Whether SQLite and a file are set up to keep the log's promises."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from penstock.core.finding import Finding, Level
from penstock.stores import blocks
from penstock.stores.base import Transaction, missing_indexes, schema_version

_FIXED = (3, 51, 3)  # here SQLite mended https://sqlite.org/wal.html#walresetbug


def findings(tx: Transaction) -> Iterator[Finding]:
    """The library's version, its settings, and indexes."""
    if sqlite3.sqlite_version_info < _FIXED:
        what = f"SQLite {sqlite3.sqlite_version} can, very rarely, damage a file (its WAL-reset bug)."
        todo = f"Use a Python with SQLite {'.'.join(map(str, _FIXED))} or newer when you can."
        yield Finding(Level.NOTE, "sqlite", what, todo)
    else:
        yield Finding(Level.OK, "sqlite", f"SQLite {sqlite3.sqlite_version}")
    settings = {row.name: str(row.setting).lower() for row in tx.rows("doctor.settings")}
    synchronous, journal = settings.get("synchronous", "unknown"), settings.get("journal_mode", "unknown")
    if synchronous not in ("full", "extra"):
        what = f"synchronous is {synchronous}: a power cut may lose what was answered as stored."
        yield Finding(Level.PROBLEM, "durability", what, "Open the log through Penstock, which sets synchronous=FULL.")
    elif journal != "wal":
        what = f"The journal is {journal}, not wal: readers and the writer wait for each other."
        todo = (
            "Close every program that has the file open, and open it through Penstock once; some network drives refuse."
        )
        yield Finding(Level.PROBLEM, "durability", what, todo)
    else:
        yield Finding(Level.OK, "durability", f"synchronous is {synchronous}, the journal is {journal}.")
    yield schema_version(blocks.migrations("sqlite")[-1][0], tx)
    yield missing_indexes(blocks.indexes("sqlite"), tx)

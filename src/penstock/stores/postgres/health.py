"""Whether a PostgreSQL server is set up to keep the log's promises."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta

from penstock.core.finding import Finding, Level, duration
from penstock.stores import blocks
from penstock.stores.base import Row, Transaction, missing_indexes, schema_version
from penstock.stores.postgres import upkeep

_OLDEST = 14
_APPENDER_SECONDS = 60


def findings(tx: Transaction, schema: str, now: datetime) -> Iterator[Finding]:
    """Settings, indexes, sequences, and who holds deliveries back."""
    settings = {row.name: row.setting for row in tx.rows("doctor.settings")}
    version = settings.get("server_version", "0")
    if int(re.match(r"\d*", version)[0] or 0) < _OLDEST:  # type: ignore[index]  # \d* always matches
        what = f"PostgreSQL {version} is older than {_OLDEST}."
        yield Finding(Level.PROBLEM, "server", what, f"Upgrade it to PostgreSQL {_OLDEST} or newer.")
    else:
        yield Finding(Level.OK, "server", f"PostgreSQL {version}")
    off = [name for name in ("fsync", "synchronous_commit", "full_page_writes") if settings.get(name) == "off"]
    for name in off:
        what = f"{name} is off: a crash of the machine may lose what was answered as stored."
        yield Finding(Level.PROBLEM, "durability", what, f"alter system set {name} = on; select pg_reload_conf();")
    if not off:
        yield Finding(Level.OK, "durability", "fsync, synchronous_commit and full_page_writes are on.")
    yield schema_version(blocks.migrations("postgres", schema)[-1][0], tx)
    yield from _home(tx)
    yield from _sequences(tx)
    yield from _holders(tx, now)
    yield missing_indexes(blocks.indexes("postgres", schema), tx)
    yield from upkeep.vacuum(tx, settings, schema, now)
    yield from upkeep.exposure(tx, settings)


def _sequences(tx: Transaction) -> Iterator[Finding]:
    rows = tx.rows("doctor.sequences")
    behind = [row for row in rows if row.last < row.stored]
    for row in behind:
        what = f"{row.name} stands at {row.last:,}, and {row.stored:,} is stored: writes fail, or are never delivered."
        yield Finding(Level.PROBLEM, "sequence", what, "Run `penstock doctor --repair`; a restore leaves it like this.")
    if not behind:
        yield Finding(Level.OK, "sequence", f"All {len(rows)} are above what is stored.")


def _home(tx: Transaction) -> Iterator[Finding]:
    row = tx.one("home.look")
    if row is not None and row.subscribed:
        what = "A subscription fills this log: its apply announces nobody, so nothing may be claimed or appended here."
        yield Finding(
            Level.PROBLEM, "home", what, "Use the publisher, or drop the subscription and run `doctor --repair`."
        )
    elif row is None or row.copied:
        what = "This log is a copy from another server: nothing is appended, claimed or read until it is repaired."
        yield Finding(Level.PROBLEM, "home", what, "Stop what still fills it, then run `penstock doctor --repair`.")
    else:
        yield Finding(Level.OK, "home", "The log lives on this server.")


def _holders(tx: Transaction, now: datetime) -> Iterator[Finding]:
    holders = tx.rows("doctor.holders")
    patience = timedelta(seconds=_APPENDER_SECONDS)
    old = [row for row in holders if row.started_at is None or now - row.started_at > patience]
    for row in old:
        age = "unknown time" if row.started_at is None else duration((now - row.started_at).total_seconds())
        what = f"{_who(row)} has appended in a transaction that is open for {age}: nothing behind it is delivered."
        yield Finding(Level.PROBLEM, "horizon", what, _let_go(row))
    if not old:
        yield Finding(Level.OK, "horizon", "No open transaction holds deliveries back.")


def _who(row: Row) -> str:
    if row.gid is not None:
        return f"The prepared transaction {row.gid!r}"
    return f"pid {row.pid} ({row.role}, {row.application_name or 'no application_name'}, {row.state})"


def _let_go(row: Row) -> str:
    if row.gid is not None:
        name = "'" + row.gid.replace("'", "''") + "'"
        return f"Ask its transaction manager, or: commit prepared {name}; or: rollback prepared {name};"
    return f"Let it commit, or: select pg_terminate_backend({row.pid});"

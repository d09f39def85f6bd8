"""`penstock doctor`: is the database set up to keep its promises, and does anything stand still?"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Group as Stacked
from rich.text import Text

from penstock.cli import output
from penstock.cli.command import OPERATE, command, root
from penstock.cli.failures import FAILED
from penstock.cli.session import Session
from penstock.core.delivery import State
from penstock.core.limits import BLOCKED_PER_LANE
from penstock.log import checking
from penstock.log import repair as repairing
from penstock.log.log import Log
from penstock.stores import blocks
from penstock.stores.base import Row, Transaction
from penstock.stores.stats import GroupStats

_OLDEST_POSTGRES = 14
_SQLITE_FIXED = (3, 51, 3)  # here SQLite mended https://sqlite.org/wal.html#walresetbug
_APPENDER_SECONDS = 60
_IDLE_SECONDS = 600
_LOOK = 100  # pending deliveries looked at to see whether any is due
_INDEX = re.compile(r"create (?:unique )?index (?:if not exists )?(\w+)")


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


_COLOURS = {Level.OK: "green", Level.NOTE: "yellow", Level.PROBLEM: "bold red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, what was found, and what to do about it."""

    level: Level
    check: str
    what: str
    todo: str | None = None


@command(root, "doctor", panel=OPERATE, example="penstock doctor --repair")
def doctor(
    session: Session,
    *,
    repair: Annotated[
        bool, typer.Option("--repair", help="Raise every sequence above what is stored, and end every open lease.")
    ] = False,
) -> None:
    """Check the database's settings, the schema, and whether anything stands still. Exit 1 over a problem."""
    with session.open() as log:
        repaired = list(_repair(log)) if repair else []
        findings = [*repaired, *examine(log)]
    healthy = not any(one.level is Level.PROBLEM for one in findings)
    session.answer({"healthy": healthy, "findings": [asdict(one) for one in findings]}, lambda: _shown(findings))
    if not healthy:
        raise typer.Exit(FAILED)


def examine(log: Log) -> list[Finding]:
    """Every check that fits the store; nothing is changed."""
    with log.store.transaction(write=False) as tx:
        now = tx.now()
        database = _postgres(tx, now) if log.store.kind == "postgresql" else _sqlite(tx)
        findings = [*database, *_indexes(log, tx), *_expired(tx, now), *_blocked(tx)]
        claims = tx.rows("doctor.last_claim")
    away = any(one.check == "home" and one.level is Level.PROBLEM for one in findings)
    return findings if away else [*findings, *_idle(log, claims, now)]


def _repair(log: Log) -> Iterator[Finding]:
    done = repairing.repair(log, by=checking.whoami())
    if done.moved:
        yield Finding(
            Level.OK, "repair: home", "The log was copied from another server; it is one of this server's now."
        )
    raised = f"Raised: {', '.join(done.sequences)}." if done.sequences else "All were above what is stored."
    yield Finding(Level.OK, "repair: sequence", raised)
    yield Finding(Level.OK, "repair: leases", f"{done.leases:,} open leases were ended.")


# --- the database --------------------------------------------------------------------------------------------------


def _postgres(tx: Transaction, now: datetime) -> Iterator[Finding]:
    settings = {row.name: row.setting for row in tx.rows("doctor.settings")}
    version = settings.get("server_version", "0")
    if int(re.match(r"\d*", version)[0] or 0) < _OLDEST_POSTGRES:  # type: ignore[index]  # \d* always matches
        what = f"PostgreSQL {version} is older than {_OLDEST_POSTGRES}."
        yield Finding(Level.PROBLEM, "server", what, f"Upgrade it to PostgreSQL {_OLDEST_POSTGRES} or newer.")
    else:
        yield Finding(Level.OK, "server", f"PostgreSQL {version}")
    off = [name for name in ("fsync", "synchronous_commit", "full_page_writes") if settings.get(name) == "off"]
    for name in off:
        what = f"{name} is off: a crash of the machine may lose what was answered as stored."
        yield Finding(Level.PROBLEM, "durability", what, f"alter system set {name} = on; select pg_reload_conf();")
    if not off:
        yield Finding(Level.OK, "durability", "fsync, synchronous_commit and full_page_writes are on.")
    yield from _home(tx)
    yield from _sequences(tx)
    yield from _holders(tx, now)


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
    old = [row for row in holders if row.started_at is None or now - row.started_at > _seconds(_APPENDER_SECONDS)]
    for row in old:
        age = "unknown time" if row.started_at is None else output.seconds((now - row.started_at).total_seconds())
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


def _sqlite(tx: Transaction) -> Iterator[Finding]:
    if sqlite3.sqlite_version_info < _SQLITE_FIXED:
        what = f"SQLite {sqlite3.sqlite_version} can, very rarely, damage a file (its WAL-reset bug)."
        todo = f"Use a Python with SQLite {'.'.join(map(str, _SQLITE_FIXED))} or newer when you can."
        yield Finding(Level.NOTE, "sqlite", what, todo)
    else:
        yield Finding(Level.OK, "sqlite", f"SQLite {sqlite3.sqlite_version}")
    settings = {row.name: str(row.setting).lower() for row in tx.rows("doctor.settings")}
    synchronous, journal = settings.get("synchronous", "unknown"), settings.get("journal_mode", "unknown")
    if synchronous in ("full", "extra"):
        yield Finding(Level.OK, "durability", f"synchronous is {synchronous}, the journal is {journal}.")
    else:
        what = f"synchronous is {synchronous}: a power cut may lose what was answered as stored."
        yield Finding(Level.PROBLEM, "durability", what, "Open the log through Penstock, which sets synchronous=FULL.")


def _indexes(log: Log, tx: Transaction) -> Iterator[Finding]:
    dialect = "postgres" if log.store.kind == "postgresql" else "sqlite"
    wanted = {name for *_, text in blocks.migrations(dialect) for name in _INDEX.findall(text)}
    missing = sorted(wanted - {row.name for row in tx.rows("doctor.indexes")})
    if missing:
        todo = "Create them again as in `penstock init --sql`."
        yield Finding(Level.PROBLEM, "indexes", f"Missing: {', '.join(missing)}.", todo)
    else:
        yield Finding(Level.OK, "indexes", f"All {len(wanted)} are there.")


# --- the groups ----------------------------------------------------------------------------------------------------


def _expired(tx: Transaction, now: datetime) -> Iterator[Finding]:
    rows = tx.rows("doctor.stuck", now=now)
    for row in rows:
        age = output.seconds((now - row.expires_at).total_seconds())
        what = f"Lease {row.id} of {row.group_name} on {row.stream}, claimed by {row.claimed_by}, expired {age} ago."
        yield Finding(Level.PROBLEM, "leases", what, "Start a worker of the group, or run `penstock reap`.")
    if not rows:
        yield Finding(Level.OK, "leases", "None has expired.")


def _blocked(tx: Transaction) -> Iterator[Finding]:
    rows = tx.rows("doctor.blocked", most=BLOCKED_PER_LANE)
    for row in rows:
        what = f"{row.group_name} on {row.stream} has {row.rows:,} deliveries blocked behind failing keys; lanes stop."
        todo = (
            f"Mend, kill or skip their heads: `penstock events {row.stream} --group {row.group_name} --state PENDING`."
        )
        yield Finding(Level.PROBLEM, "lanes", what, todo)
    if not rows:
        yield Finding(Level.OK, "lanes", "No lane is blocked.")


def _idle(log: Log, claims: Iterable[Row], now: datetime) -> list[Finding]:
    last = {(row.stream, row.group_name): row.claimed_at for row in claims}
    found = []
    for group in log.stats().groups:
        claimed_at = last.get((group.stream, group.group))
        if group.unavailable is not None and not group.paused:
            what = f"{group.group} on {group.stream} has an open circuit, its target being down: {group.unavailable}."
            found.append(Finding(Level.NOTE, "groups", what, "Mend the target; one event is tried now and then."))
            continue
        if group.pending == 0 or (claimed_at is not None and now - claimed_at < _seconds(_IDLE_SECONDS)):
            continue
        if group.paused:
            why = group.pause_reason or "by hand"
            what = f"{group.group} on {group.stream} is paused ({why}): {group.pending:,} wait."
            todo = f"penstock group resume {group.stream} {group.group}"
            found.append(Finding(Level.NOTE, "groups", what, todo))
        elif _waits_for_a_worker(log, group, now):
            ago = "ever" if claimed_at is None else f"since {output.age(claimed_at, now)}"
            what = f"Nobody has claimed for {group.group} on {group.stream} {ago}: {group.pending:,} wait."
            found.append(Finding(Level.PROBLEM, "groups", what, "Start a worker, or delete the group."))
    return found or [Finding(Level.OK, "groups", "Whatever waits is being claimed.")]


def _waits_for_a_worker(log: Log, group: GroupStats, now: datetime) -> bool:
    """Something was due ten minutes ago; what is dated in the future waits for its time."""
    if group.oldest_seconds is None or group.oldest_seconds < _IDLE_SECONDS:
        return False
    pending = log.deliveries(group.stream, group.group, state=State.PENDING, limit=_LOOK)
    due = now - _seconds(_IDLE_SECONDS)
    return any((one.available_at or one.created_at) <= due for one in pending)


def _seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def _shown(findings: list[Finding]) -> Stacked:
    lines = []
    for one in findings:
        line = Text.assemble(
            (f"{one.level:<8}", _COLOURS[one.level]), (f"{one.check:<17}", "bold"), output.plain(one.what)
        )
        lines.append(line)
        if one.todo:
            lines.append(Text(f"{'':8}→ {output.plain(one.todo)}", style="dim"))
    return Stacked(*lines)

"""Whether the server keeps the log's tables tidy, and whom it lets in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from penstock.core.finding import Finding, Level, duration
from penstock.core.urls import is_loopback
from penstock.stores.base import Transaction

_FREEZE_LATE = 2  # times `autovacuum_freeze_max_age`: vacuum should have frozen long ago
_NEAR_THE_END = 1_500_000_000  # of 2,147,483,648 transactions, after which the server stops
_SNAPSHOT_SECONDS = 3_600


def vacuum(tx: Transaction, settings: Mapping[str, str], schema: str, now: datetime) -> Iterator[Finding]:
    """Autovacuum, the distance to the wraparound, and who keeps vacuum from doing its work."""
    found = [*_switched_off(tx, settings, schema), *_wraparound(tx, settings), *_snapshots(tx, now)]
    yield from found or [Finding(Level.OK, "vacuum", "Autovacuum works, and nothing keeps it from doing so.")]


def _switched_off(tx: Transaction, settings: Mapping[str, str], schema: str) -> Iterator[Finding]:
    if settings.get("autovacuum") == "off":
        what = "autovacuum is off: tables grow, plans get worse, and one day the server stops."
        yield Finding(Level.PROBLEM, "vacuum", what, "alter system set autovacuum = on; select pg_reload_conf();")
    for row in tx.rows("doctor.unvacuumed"):
        what = f"autovacuum is off for the table {row.name}."
        yield Finding(Level.PROBLEM, "vacuum", what, f"alter table {schema}.{row.name} reset (autovacuum_enabled);")


def _wraparound(tx: Transaction, settings: Mapping[str, str]) -> Iterator[Finding]:
    row = tx.one("doctor.wraparound")
    assert row is not None
    age = max(int(row.transactions), int(row.multis))
    usual = int(settings.get("autovacuum_freeze_max_age", 200_000_000))
    if age > min(_NEAR_THE_END, _FREEZE_LATE * usual):
        what = f"The oldest transaction of this database is {age:,} transactions old; at 2.1 billion the server stops."
        todo = "Find what holds vacuum back (old transactions, prepared ones, replication slots), then: vacuum freeze;"
        yield Finding(Level.PROBLEM if age > _NEAR_THE_END else Level.NOTE, "vacuum", what, todo)


def _snapshots(tx: Transaction, now: datetime) -> Iterator[Finding]:
    for row in tx.rows("doctor.snapshots", before=now - timedelta(seconds=_SNAPSHOT_SECONDS)):
        age = duration((now - row.started_at).total_seconds())
        who = f"pid {row.pid} ({row.role}, {row.application_name or 'no application_name'}, {row.state})"
        what = f"{who} has a transaction that is open for {age}: vacuum removes nothing that is newer."
        yield Finding(Level.NOTE, "vacuum", what, f"Let it end, or: select pg_terminate_backend({row.pid});")


def exposure(tx: Transaction, settings: Mapping[str, str]) -> Iterator[Finding]:
    """Whether somebody on the network is let into the database without a password; only who may see the rules knows."""
    may = tx.one("doctor.may_see_rules")
    if may is None or not may.may:
        return
    listens = [one.strip() for one in settings.get("listen_addresses", "").split(",") if one.strip()]
    outside = [one for one in listens if not is_loopback(one)]
    for row in tx.rows("doctor.rules"):
        what = (
            f"Line {row.line_number} of pg_hba.conf lets {row.users} into {row.databases} from {row.address} "
            f"without a password{'' if outside else '; the server listens on loopback addresses only'}."
        )
        todo = "Change `trust` to `scram-sha-256` there, then: select pg_reload_conf();"
        yield Finding(Level.PROBLEM if outside else Level.NOTE, "bind", what, todo)

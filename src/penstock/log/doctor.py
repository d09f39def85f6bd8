"""The doctor: is the database set up to keep its guarantees, and is anything stuck?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

from penstock.core.delivery import State
from penstock.core.finding import Finding, Level, duration
from penstock.core.limits import BLOCKED_PER_LANE, RUN_LOST_SECONDS, TALLY_EVERY
from penstock.log import deliveries, doctor_runs, stats
from penstock.log.reader_claims import CLAIMED_BY
from penstock.log.repair import Repaired
from penstock.log.selection import Selection
from penstock.log.stats import GroupStats
from penstock.log.transact import look
from penstock.stores.base import Row, Store, Transaction

__all__ = ["Finding", "Level", "examine", "repaired"]
_IDLE_SECONDS = 600
_SILENT_SECONDS = 3_600  # a micro-batch that takes longer is more likely a query that has failed
_CLOCK_SECONDS = 2.0
_UNCOUNTED = 20  # marks of the tally
_ROWS = 10_000  # of a state that are counted in a group
_LOOK = 100  # pending deliveries examined to see whether any is due


def examine(store: Store) -> list[Finding]:
    """Run every check; nothing is changed."""
    with store.transaction(write=False) as tx:
        before, now, after = local_now(), tx.now(), local_now()
        findings = [*store.health(tx, now), _clock(now, before, after)]
        if _has_problem(findings, "indexes"):
            return findings  # the other checks would fail, or read whole tables
        findings += [*_expired(tx, now), *_silent_readers(tx, now), *_blocked(tx)]
        findings += [*doctor_runs.lost(tx, now), *doctor_runs.exposed(tx, now)]
        if _has_problem(findings, "home"):
            return findings
        findings += _uncounted(tx)
        claims = tx.rows("doctor.last_claim")
    return [*findings, *_idle(store, claims, now)]


def _has_problem(findings: Iterable[Finding], check: str) -> bool:
    return any(one.check == check and one.level is Level.PROBLEM for one in findings)


def repaired(done: Repaired) -> Iterator[Finding]:
    """Report what a repair did."""
    if done.moved:
        what = "The log was copied from another server; it belongs to this server now."
        yield Finding(Level.OK, "repair: home", what)
    raised = f"Raised: {', '.join(done.sequences)}." if done.sequences else "All were above what is stored."
    yield Finding(Level.OK, "repair: sequence", raised)
    yield Finding(Level.OK, "repair: leases", f"{done.leases:,} open leases were ended.")
    if done.indexes:
        yield Finding(Level.OK, "repair: indexes", f"Created again: {', '.join(done.indexes)}.")
    if done.runs:
        yield Finding(Level.OK, "repair: runs", f"{done.runs:,} lost runs were closed.")


def local_now() -> datetime:
    """This machine's time."""
    return datetime.now(UTC)


def _clock(now: datetime, before: datetime, after: datetime) -> Finding:
    """Compare the clocks; the database's decides everything, so this only confuses who reads logs."""
    apart = max((before - now).total_seconds(), (now - after).total_seconds())
    if apart < _CLOCK_SECONDS:
        return Finding(Level.OK, "clock", "This machine and the database agree on the time.")
    ahead = "ahead of" if before > now else "behind"
    what = f"This machine's clock is {duration(apart)} {ahead} the database's, which decides when things are due."
    return Finding(
        Level.NOTE, "clock", what, "Synchronise both with NTP: `--at +1h` and log lines follow this machine's."
    )


def _uncounted(tx: Transaction) -> Iterator[Finding]:
    """Find a tally that is behind: counts then read every event above its last mark."""
    row = tx.one("tally.last")
    counted, horizon = 0 if row is None else int(row.upto), tx.horizon()
    if horizon - counted > _UNCOUNTED * TALLY_EVERY:
        what = f"The log is counted up to {counted:,} of {horizon:,}: stats get slower with every event."
        yield Finding(Level.NOTE, "tally", what, "Run a worker or `penstock serve`: they count in the background.")
    else:
        yield Finding(Level.OK, "tally", f"The log is counted up to {counted:,} of {horizon:,}.")


def _expired(tx: Transaction, now: datetime) -> Iterator[Finding]:
    rows = tx.rows("doctor.stuck", now=now)
    for row in rows:
        age = duration((now - row.expires_at).total_seconds())
        what = f"Lease {row.id} of {row.group_name} on {row.stream}, claimed by {row.claimed_by}, expired {age} ago."
        yield Finding(Level.PROBLEM, "leases", what, "Start a worker of the group, or run `penstock reap`.")
    if not rows:
        yield Finding(Level.OK, "leases", "None has expired.")


def _silent_readers(tx: Transaction, now: datetime) -> Iterator[Finding]:
    """Name streaming readers that hold a claim without settling it: one that has failed holds it for days."""
    rows = tx.rows("doctor.readers", now=now, lost_seconds=RUN_LOST_SECONDS, silent_seconds=_IDLE_SECONDS)
    for row in rows:
        reader, held = row.claimed_by.removeprefix(CLAIMED_BY), now - row.claimed_at
        what = (
            f"Reader {reader} of {row.group_name} on {row.stream} has held {row.events:,} events for "
            f"{duration(held.total_seconds())}{', and its run is over' if row.gone else ''}."
        )
        surely = row.gone or held > _seconds(_SILENT_SECONDS)
        todo = (
            "Start its query again with its checkpoint; if it will not come back: "
            f"`penstock release {row.stream} {row.group_name} --reader {reader}`."
        )
        yield Finding(Level.PROBLEM if surely else Level.NOTE, "readers", what, todo)
    if not rows:
        yield Finding(Level.OK, "readers", "No streaming reader is silent.")


def _blocked(tx: Transaction) -> Iterator[Finding]:
    rows = tx.rows("doctor.blocked", most=BLOCKED_PER_LANE)
    for row in rows:
        what = f"{row.group_name} on {row.stream} has {row.rows:,} deliveries blocked by failing keys; lanes stop."
        todo = (
            "Fix, kill or skip the first event of each key: "
            f"`penstock events {row.stream} --group {row.group_name} --state PENDING`."
        )
        yield Finding(Level.PROBLEM, "lanes", what, todo)
    if not rows:
        yield Finding(Level.OK, "lanes", "No lane is blocked.")


def _idle(store: Store, claims: Iterable[Row], now: datetime) -> list[Finding]:
    last = {(row.stream, row.group_name): row.claimed_at for row in claims}
    found = []
    for group in look(store, lambda tx: stats.stats_in(tx, most=_ROWS)).groups:
        claimed_at = last.get((group.stream, group.group))
        if group.unavailable is not None and not group.paused:
            what = (
                f"{group.group} on {group.stream} has an open circuit, because its target is down: {group.unavailable}."
            )
            found.append(Finding(Level.NOTE, "groups", what, "Fix the target; one event is tried now and then."))
            continue
        if group.paused:
            why = group.pause_reason or "by hand"
            what = f"{group.group} on {group.stream} is paused ({why}): {group.pending:,} events wait."
            todo = f"penstock group resume {group.stream} {group.group}"
            found.append(Finding(Level.NOTE, "groups", what, todo))
            continue
        if group.pending == 0 or (claimed_at is not None and now - claimed_at < _seconds(_IDLE_SECONDS)):
            continue
        if _waits_for_a_worker(store, group, now):
            ago = "ever" if claimed_at is None else f"for {duration((now - claimed_at).total_seconds())}"
            what = f"Nobody has claimed for {group.group} on {group.stream} {ago}: {group.pending:,} events wait."
            found.append(Finding(Level.PROBLEM, "groups", what, "Start a worker, or delete the group."))
    return found or [Finding(Level.OK, "groups", "All waiting events are being claimed.")]


def _waits_for_a_worker(store: Store, group: GroupStats, now: datetime) -> bool:
    """Return whether something was due ten minutes ago; events dated in the future do not count."""
    if group.oldest_seconds is None or group.oldest_seconds < _IDLE_SECONDS:
        return False
    where = (group.stream, group.group, Selection())
    pending = deliveries.deliveries(store, *where, state=State.PENDING, after=0, limit=_LOOK)
    due = now - _seconds(_IDLE_SECONDS)
    return any((one.available_at or one.created_at) <= due for one in pending)


def _seconds(count: float) -> timedelta:
    return timedelta(seconds=count)

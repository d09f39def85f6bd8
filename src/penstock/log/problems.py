"""What is wrong with the log now, the worst first. Every look is bounded, so that a page may ask often."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from penstock.core.finding import duration
from penstock.core.limits import BLOCKED_PER_LANE, RUN_LOST_SECONDS
from penstock.log import stats
from penstock.log.stats import GroupStats, Stats
from penstock.log.transact import look
from penstock.stores.base import Row, Store, Transaction

UNSERVED_SECONDS: Final = 60.0  # nobody has claimed for so long, though something is due
HELD_SECONDS: Final = 10.0  # the horizon is held for so long
DIED_SECONDS: Final = 3_600.0
DIED_MOST: Final = 1_000  # dead letters of the last hour that are counted
ROWS_MOST: Final = 2_000  # rows of a state that are counted in each group, and waiting ones looked at for retries
_LISTED: Final = 5  # of a kind that has no group


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that somebody should look at; a grave one stops work or loses it."""

    kind: str  # paused, circuit, horizon, unserved, blocked, lost_run, expired, dying
    grave: bool
    stream: str | None
    group: str | None
    what: str
    since: datetime | None
    todo: str


@dataclass(frozen=True, slots=True)
class Survey:
    """All groups, what is wrong with them, and how many deliveries of each wait for another attempt."""

    stats: Stats
    problems: tuple[Problem, ...]
    retrying: Mapping[tuple[str, str], int]
    claimed: Mapping[tuple[str, str], datetime | None]  # when each was last claimed from
    now: datetime


def survey(store: Store, stream: str | None = None, group: str | None = None) -> Survey:
    """Look at everything, a stream, or a group; nothing is written."""
    known, found = look(store, lambda tx: _read(tx, stream, group))
    problems = [*_grave(known, found), *_lesser(known, found)]
    problems += [one for one in _of_log(found) if stream is None or (one.stream, one.group) in found.groups]
    retrying = {key: int(row.retrying) for key, row in found.groups.items()}
    claimed = {key: row.claimed_at for key, row in found.groups.items()}
    ordered = sorted(problems, key=lambda one: (not one.grave, one.stream or "", one.group or ""))
    return Survey(known, tuple(ordered), retrying, claimed, found.now)


def problems(store: Store) -> list[Problem]:
    """Return what is wrong, the worst first."""
    return list(survey(store).problems)


@dataclass(frozen=True, slots=True)
class _Read:
    now: datetime
    groups: Mapping[tuple[str, str], Row]
    unserved: frozenset[tuple[str, str]]
    down: list[Row]
    holders: list[Row]
    expired: list[Row]
    runs: list[Row]


def _read(tx: Transaction, stream: str | None, group_name: str | None) -> tuple[Stats, _Read]:
    known = stats.stats_in(tx, stream, group_name, ROWS_MOST)
    now = tx.now()
    rows, *others = tx.together(
        ("problems.groups", {"stream": stream, "group_name": group_name, **_bounds(now)}),
        ("circuit.opened", {}),
        ("doctor.holders", {}),
        ("doctor.stuck", {"now": now}),
        ("run.list", {"everything": False}),
    )
    groups = {(row.stream, row.group_name): row for row in rows}
    return known, _Read(now, groups, _unserved(tx, known, groups, now), *others)


def _unserved(
    tx: Transaction, known: Stats, groups: Mapping[tuple[str, str], Row], now: datetime
) -> frozenset[tuple[str, str]]:
    """Find the groups that nobody works for, though something is due, and not only dated in the future."""
    waiting = {}
    for one in known.groups:
        row = groups.get(_of(one))
        if row is not None and _waits(one, row, now):
            waiting[row.group_id] = _of(one)
    if not waiting:
        return frozenset()
    due = tx.rows("drain.due_groups", ids=list(waiting), horizon=known.horizon, now=now)
    return frozenset(waiting[row.group_id] for row in due)


def _waits(one: GroupStats, row: Row, now: datetime) -> bool:
    idle = one.pending > 0 and one.open_leases == 0 and (one.oldest_seconds or 0) > UNSERVED_SECONDS
    claimed = row.claimed_at is not None and (now - row.claimed_at).total_seconds() < UNSERVED_SECONDS
    return idle and not claimed and not one.paused and one.unavailable is None


def _bounds(now: datetime) -> dict[str, object]:
    since = now - timedelta(seconds=DIED_SECONDS)
    return {"since": since, "most": DIED_MOST, "blocked": BLOCKED_PER_LANE - 1, "look": ROWS_MOST}


def _grave(known: Stats, found: _Read) -> Iterator[Problem]:
    """Yield groups that do no work."""
    for one in known.groups:
        row = found.groups.get((one.stream, one.group))
        if row is None:
            continue
        if one.paused:
            why = one.pause_reason or "by hand"
            who = "" if row.paused_by is None else f" by {row.paused_by}"
            what = f"paused{who}: {why}"
            yield Problem("paused", bool(one.pending), *_of(one), what, row.paused_at, "Fix the cause, then resume it.")
        elif row.blocked_lanes:
            lanes = "1 lane stands" if row.blocked_lanes == 1 else f"{row.blocked_lanes} lanes stand"
            what = f"{lanes} still: {BLOCKED_PER_LANE:,} deliveries wait behind keys that fail"
            yield Problem("blocked", True, *_of(one), what, None, "Fix, kill or skip the first delivery of each key.")
        elif _of(one) in found.unserved:
            ago = "ever" if row.claimed_at is None else f"for {duration((found.now - row.claimed_at).total_seconds())}"
            what = f"nobody has claimed {ago}: {one.pending:,} wait"
            yield Problem("unserved", True, *_of(one), what, row.claimed_at, "Start a worker, or delete the group.")


def _lesser(known: Stats, found: _Read) -> Iterator[Problem]:
    """Yield groups that work, but not well."""
    for one in known.groups:
        row = found.groups.get((one.stream, one.group))
        if row is not None and row.died:
            count = f"{row.died:,}{'+' if row.died >= DIED_MOST else ''}"
            what = f"{count} {'delivery' if row.died == 1 else 'deliveries'} died within the hour"
            yield Problem("dying", False, *_of(one), what, None, "Look at the errors, fix the handler, then redrive.")


def _of_log(found: _Read) -> Iterator[Problem]:
    """Yield what concerns the log, or a target, or a worker."""
    for down in found.down:
        what = f"the target is down: {down.last_error or 'unavailable'}"
        todo = "One event is tried now and then."
        yield Problem("circuit", True, down.stream, down.group_name, what, down.opened_at, todo)
    for row in found.holders[:_LISTED]:
        held = 0.0 if row.started_at is None else (found.now - row.started_at).total_seconds()
        if held >= HELD_SECONDS:
            who = f"prepared transaction {row.gid}" if row.pid is None else f"pid {row.pid} “{row.application_name}”"
            what = f"the horizon is held by {who}, {row.state or 'prepared'}: later events wait for its commit"
            yield Problem("horizon", True, None, None, what, row.started_at, "Let it commit, or end that session.")
    for row in found.expired[:_LISTED]:
        what = f"lease #{row.id} of {row.claimed_by} has expired, and nobody takes it back"
        yield Problem("expired", True, row.stream, row.group_name, what, row.expires_at, "Start a worker, or reap.")
    lost = [row for row in found.runs if (found.now - row.heartbeat_at).total_seconds() > RUN_LOST_SECONDS]
    for row in lost[:_LISTED]:
        what = f"run {row.id} “{row.name}” on {row.host} sends no heartbeat"
        yield Problem("lost_run", False, None, None, what, row.heartbeat_at, "See whether its process is alive.")


def _of(one: GroupStats) -> tuple[str, str]:
    return one.stream, one.group

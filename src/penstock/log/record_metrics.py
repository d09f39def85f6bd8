"""Record: once a minute, over all processes, count what ended and sample what waits.

Flows come from the leases. A group's mark says up to which lease it is counted and which of those were still open, so a
round looks only at leases that are new or were open, and counts each of them once, into the minute in which it ended.
Nothing is lost while nobody records: the next round counts what ended meanwhile. Samples that nobody took are gaps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from penstock.core import limits
from penstock.core.timeline import MINUTE, SET_BACK, start_of
from penstock.log import fold_metrics
from penstock.log.stats import GroupStats, stats_in
from penstock.log.transact import look, transact
from penstock.stores.base import Row, Store, Transaction

FLOWS: Final = ("published", "failed", "dead", "released")
GAUGES: Final = ("lag", "oldest_seconds", "pending", "claimed", "retrying", "dead_letters")
Values = dict[str, Any]  # flows and gauges by name; a gauge that nobody sampled is missing


@dataclass(slots=True)
class Uncounted:
    """Leases of a group that its mark does not cover: what has ended, by the minute, and what is open."""

    lanes: int
    upto: int = 0  # the newest of them
    fresh: int = 0  # how many are above the mark
    open_ids: list[int] = field(default_factory=list)
    minutes: dict[datetime, Values] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Sample:
    """What is to be written for a minute, as one snapshot of the log shows it."""

    minute: datetime
    before: datetime | None  # the minute of the last round: nobody has recorded since
    gauges: Mapping[int, Values]
    streams: Sequence[Values]


def record(store: Store) -> bool:
    """Record the numbers of this minute, unless somebody has; returns whether it did. Nobody waits for anybody."""
    sample = look(store, _sample)
    if sample is None:
        return False
    behind = transact(store, partial(_round, sample=sample))
    if behind is None:
        return False
    for _ in range(limits.METRIC_STEPS):
        if not behind:
            break
        behind = transact(store, partial(_catch_up, minute=sample.minute, ids=behind))
    fold_metrics.fold(store)
    return True


# --- what waits -------------------------------------------------------------------------------------------------------


def _sample(tx: Transaction) -> _Sample | None:
    last = tx.one("metric.last")
    minute = start_of(tx.now(), MINUTE)
    before = None if last is None else last.sampled_at
    if before is not None and minute <= before <= minute + SET_BACK:
        return None
    found = stats_in(tx)
    ids = {(row.stream, row.group_name): int(row.group_id) for row in tx.rows("metric.groups")}
    retrying = {int(row.group_id): int(row.rows) for row in tx.rows("metric.retrying")}
    gauges = {}
    for one in found.groups:
        group_id = ids[one.stream, one.group]
        if one.lag or one.dead:
            gauges[group_id] = _gauges(one, retrying.get(group_id, 0))
    events = {one.stream: one.events for one in found.streams}
    return _Sample(minute, before, gauges, _appended(tx, events))


def _gauges(one: GroupStats, retrying: int) -> Values:
    """Return the samples of a group. One that has nothing to do is not written: its absence says so."""
    return {
        "lag": one.lag,
        "oldest_seconds": one.oldest_seconds or 0.0,
        "pending": one.pending,
        "claimed": one.claimed,
        "retrying": retrying,
        "dead_letters": one.dead,
    }


def _appended(tx: Transaction, events: Mapping[str, int]) -> list[Values]:
    """Return what streams got since the last sample: events that are there or were removed, less those before."""
    total = Counter(events)
    total.update({row.stream: int(row.events) for row in tx.rows("metric.removed", stream=None)})
    sampled = {row.stream: int(row.events) for row in tx.rows("metric.sampled", stream=None)}
    return [
        {"stream": stream, "appended": count - sampled.get(stream, 0), "events": count}
        for stream, count in sorted(total.items())
        if count > sampled.get(stream, 0)
    ]


# --- a round ----------------------------------------------------------------------------------------------------------


def _round(tx: Transaction, sample: _Sample) -> list[int] | None:
    """Write a sample, and count; returns the groups that have more to count, None if it is somebody else's turn."""
    turn = tx.one("metric.turn")
    if turn is None or turn.sampled_at != sample.before:
        return None
    tx.run("metric.recorded", minute=sample.minute, now=tx.now())
    tx.run("metric.round", minute=sample.minute)
    if sample.streams:
        # What came until now belongs to the minute before; how far back it reaches, the rounds tell.
        at = sample.minute - timedelta(seconds=MINUTE)
        tx.run("metric.appended", rows=list(sample.streams), at=at)
    return _count(tx, sample.minute, None, sample.gauges)


def _catch_up(tx: Transaction, minute: datetime, ids: list[int]) -> list[int]:
    return [] if tx.one("metric.turn") is None else _count(tx, minute, ids, {})


def uncounted(tx: Transaction, ids: list[int] | None, most: int) -> dict[int, Uncounted]:
    """Return what marks do not cover yet, of these groups or of all; at most so many new leases of each."""
    found: dict[int, Uncounted] = {}
    for row in tx.rows("metric.uncounted", ids=ids, most=most):
        one = found.setdefault(int(row.group_id), Uncounted(int(row.lanes)))
        one.upto = max(one.upto, row.upto or 0)
        one.fresh += int(row.fresh)
        if row.minute_at is None:
            one.open_ids = list(row.open_ids)
        else:
            one.minutes[row.minute_at] = {name: int(getattr(row, name)) for name in FLOWS}
    return found


def values_of(row: Row) -> Values:
    """Return flows and gauges of a row."""
    return {name: value for name in (*FLOWS, *GAUGES) if (value := getattr(row, name)) is not None}


def add(values: Values, more: Mapping[str, Any]) -> None:
    """Add flows; of samples the larger one stays."""
    for name, value in more.items():
        if name in FLOWS:
            values[name] = values.get(name, 0) + value
        elif name in GAUGES:
            values[name] = max(values.get(name, value), value)


def _count(tx: Transaction, minute: datetime, ids: list[int] | None, gauges: Mapping[int, Values]) -> list[int]:
    """Count leases of groups, and write what past minutes had; returns the groups that have more."""
    groups = len(tx.rows("metric.groups")) if ids is None else len(ids)
    most = max(limits.METRIC_LEASES_LEAST, limits.METRIC_LEASES // max(1, groups))
    found = uncounted(tx, ids, most)
    named = sorted(found.keys() | gauges.keys())
    marks = {int(row.group_id): row for row in tx.rows("metric.marks", ids=named, others=True)}
    past: list[Values] = []
    written: list[Values] = []
    for group_id in sorted(found.keys() | gauges.keys() | marks.keys()):
        mark, counted = marks.get(group_id), found.get(group_id)
        if counted is None and mark is not None and mark.behind and (ids is None or group_id in ids):
            counted = Uncounted(int(mark.lanes))  # nothing was left
        if counted is None and group_id not in gauges and mark is not None and mark.minute_at == minute:
            continue
        minutes = _minutes(mark, counted, gauges.get(group_id), minute)
        current = minutes.pop(minute, None)
        past += [_row(values, group_id=group_id, at=at) for at, values in sorted(minutes.items())]
        written.append(_marked(group_id, mark, counted, most, minute if current else None, current or {}))
    if past:
        tx.run("metric.add", rows=past)
    if written:
        tx.run("metric.mark", rows=written)
    return [int(row["group_id"]) for row in written if row["behind"]]


def _minutes(
    mark: Row | None, counted: Uncounted | None, gauges: Values | None, minute: datetime
) -> dict[datetime, Values]:
    """Return what a group has in every minute that is not written yet."""
    found: dict[datetime, Values] = {}
    if mark is not None and mark.minute_at is not None:
        add(found.setdefault(mark.minute_at, {}), values_of(mark))
    for at, flows in () if counted is None else counted.minutes.items():
        add(found.setdefault(at, {}), flows)
    if gauges is not None:
        add(found.setdefault(minute, {}), gauges)
    return {at: values for at, values in found.items() if any(values.values())}


def _marked(
    group_id: int, mark: Row | None, counted: Uncounted | None, most: int, at: datetime | None, current: Values
) -> Values:
    """Return the new mark of a group."""
    known = {"upto": 0, "open_ids": [], "lanes": 1, "behind": False}
    if mark is not None:
        known = {"upto": mark.upto, "open_ids": mark.open_ids, "lanes": mark.lanes, "behind": bool(mark.behind)}
    if counted is not None:
        behind = counted.fresh >= most
        known["upto"] = max(int(known["upto"]), counted.upto)  # type: ignore[call-overload]
        known["open_ids"] = counted.open_ids
        known["behind"] = behind
        known["lanes"] = known["lanes"] if behind else counted.lanes
    return _row(current, group_id=group_id, at=at, **known)


def _row(values: Values, **more: Any) -> Values:
    flows: Iterable[tuple[str, Any]] = ((name, values.get(name, 0)) for name in FLOWS)
    return {**more, **dict(flows), **{name: values.get(name) for name in GAUGES}}

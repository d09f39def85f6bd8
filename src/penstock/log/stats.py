"""Stats: counts per state, lag and age of every group, in time that does not grow with the log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from penstock.core import limits
from penstock.core.binding import Span
from penstock.core.event import check_name
from penstock.core.group import Group
from penstock.core.job import GROUP, name_of
from penstock.log import groups
from penstock.log.transact import look
from penstock.stores.base import Row, Store, Transaction
from penstock.stores.rows import CursorRow

Counts = Mapping[str, int]  # per event type
_LEASES_LOOKED_AT = 64  # of each lane, for the rate
_FAR_LOOKS = 20


@dataclass(frozen=True, slots=True)
class StreamStats:
    """The number of events of a stream, up to the horizon."""

    stream: str
    events: int


@dataclass(frozen=True, slots=True)
class GroupStats:
    """The deliveries of a group per state, its lag, and the age of its oldest unfinished event."""

    stream: str
    group: str
    pending: int
    claimed: int
    published: int
    dead: int
    lag: int
    oldest_seconds: float | None
    paused: bool
    pause_reason: str | None
    open_leases: int
    published_per_second: float
    lag_is_exact: bool = True
    unavailable: str | None = None  # the target's error, while the circuit is open
    completed_total: int | None = None  # of jobs: those that have finished, even if they were removed since
    exhausted_total: int | None = None  # of jobs: those that are dead, or were removed dead
    purged: int = 0  # dead letters that were purged or mended: they are not in `dead`


@dataclass(frozen=True, slots=True)
class JobTypeStats:
    """The jobs of a type in a queue, of all priorities."""

    type: str
    queue: str
    pending: int = 0
    claimed: int = 0
    completed_total: int = 0
    exhausted_total: int = 0

    def plus(self, one: GroupStats) -> JobTypeStats:
        """Add the jobs of a priority."""
        return replace(
            self,
            pending=self.pending + one.pending,
            claimed=self.claimed + one.claimed,
            completed_total=self.completed_total + (one.completed_total or 0),
            exhausted_total=self.exhausted_total + (one.exhausted_total or 0),
        )


@dataclass(frozen=True, slots=True)
class Stats:
    """The result of `log.stats()`."""

    horizon: int
    streams: tuple[StreamStats, ...]
    groups: tuple[GroupStats, ...]

    @property
    def job_types(self) -> tuple[JobTypeStats, ...]:
        """Jobs by type and queue. A type that nobody has claimed from yet has no group, and is not there."""
        found: dict[tuple[str, str], JobTypeStats] = {}
        for one in self.groups:
            name = name_of(one.stream)
            if name is not None and one.group == GROUP:
                key = (name.type, name.queue)
                found[key] = found.get(key, JobTypeStats(*key)).plus(one)
        return tuple(found[key] for key in sorted(found))


class _Counts:
    """Events per stream and type: up to the horizon, and up to every offset at which a group's binding changes."""

    def __init__(self, tx: Transaction, stream: str | None, horizon: int, changes: Iterable[tuple[str, int]]) -> None:
        self.now: dict[str, dict[str, int]] = defaultdict(dict)
        for row in tx.rows("stats.now", stream=stream, upto=horizon):
            self.now[row.stream][row.event_type] = int(row.events)
        self._horizon = horizon
        self._at: dict[tuple[str, int], Counts] = {}
        edges = sorted({(name, edge) for name, edge in changes if 0 < edge < horizon})
        if edges:
            self._ask(tx, edges)

    def _ask(self, tx: Transaction, edges: list[tuple[str, int]]) -> None:
        streams, offsets = [stream for stream, _ in edges], [offset for _, offset in edges]
        before: tuple[str, int] | None = None
        found: dict[tuple[str, int], dict[str, int]] = {}
        for row in tx.rows("stats.at", streams=streams, offsets=offsets):
            place = (row.stream, int(row.offset))
            if place not in found:
                found[place] = dict(found[before]) if row.relative and before is not None else {}
                before = place
            if row.event_type is not None:
                found[place][row.event_type] = found[place].get(row.event_type, 0) + int(row.events)
        self._at.update(found)

    def wanted(self, stream: str, span: Span, offset: int) -> int:
        """Count the events up to an offset whose type the binding covers."""
        if offset <= 0:
            return 0
        counts = self.now[stream] if offset >= self._horizon else self._at[stream, offset]
        return span.counted(counts)


def _edges(group: Group) -> list[int]:
    return [group.floor, *(span.low for span in group.spans[1:])]


def stats(store: Store, stream: str | None = None, group: str | None = None) -> Stats:
    """Return the stats of the log, one stream or one group; nothing is written."""
    return look(store, lambda tx: stats_in(tx, stream, group))


def stats_in(
    tx: Transaction, stream: str | None = None, group_name: str | None = None, most: int | None = None
) -> Stats:
    """Return them as this transaction sees them; with `most`, rows of a state are counted up to so many in a group."""
    horizon = tx.horizon()
    now = tx.now()
    which = {"stream": stream, "group_name": group_name}
    known = groups.every(tx, stream, group_name)
    counts = _Counts(tx, stream, horizon, [(group.stream, edge) for group in known for edge in _edges(group)])
    ids = [group.group_id for group in known]
    found, cursors, exceptions, removed_jobs = tx.together(
        ("stats.groups", {"now": now, "looked": _LEASES_LOOKED_AT, **which}),
        ("stats.lanes", which),
        ("stats.rows", {"ids": ids, **which}) if most is None else ("problems.rows", {"most": most, **which}),
        ("stats.gone", which),
    )
    facts = {row.group_id: row for row in found}
    lanes, rows = _by_group(cursors), _by_group(exceptions)
    gone = {row.group_id: (int(row.completed), int(row.exhausted)) for row in removed_jobs}
    looks = []
    for group in known:
        mine = lanes[group.group_id]
        consumed = group.matched_before + sum(lane.total or 0 for lane in mine)
        beyond, exact = _beyond(tx, counts, group, consumed, horizon)
        waiting = [row for row in rows[group.group_id] if row.state != "DEAD"]
        exact = exact and (most is None or all(row.rows < most for row in waiting))
        removed = gone.get(group.group_id, (0, 0)) if group.of_jobs else None
        looks.append(_Look(group, facts[group.group_id], mine, rows[group.group_id], consumed, beyond, exact, removed))
    oldest = _oldest(tx, looks, horizon)
    totals = {name: sum(types.values()) for name, types in counts.now.items()}
    streams = tuple(StreamStats(name, events) for name, events in sorted(totals.items()) if events)
    return Stats(horizon, streams, tuple(look.stats(oldest.get(look.group.group_id), now) for look in looks))


def _by_group(rows: list[Row]) -> Mapping[int, list[Row]]:
    found: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        found[row.group_id].append(row)
    return found


def events_in(tx: Transaction, stream: str) -> int:
    """Return the number of events of a stream, up to the horizon."""
    return sum(int(row.events) for row in tx.rows("stats.now", stream=stream, upto=tx.horizon()))


def types_of(store: Store, stream: str) -> dict[str, int]:
    """Return how many events of each type a stream has up to the horizon, most first."""
    check_name(stream, "stream")
    rows = look(store, lambda tx: tx.rows("stats.now", stream=stream, upto=tx.horizon()))
    return {row.event_type: int(row.events) for row in sorted(rows, key=lambda row: (-row.events, row.event_type))}


def _beyond(tx: Transaction, counts: _Counts, group: Group, consumed: int, horizon: int) -> tuple[int, bool]:
    """Count the matching events above the lanes' cursors, and say whether the count is exact."""
    if any(span.headers is not None for span in group.spans):
        most = limits.SCAN
        row = tx.one("stats.beyond", stream=group.stream, group_id=group.group_id, upto=horizon, most=most)
        assert row is not None
        return int(row.wanted), row.looked < most
    return max(0, _population(counts, group, horizon) - consumed), True


def _population(counts: _Counts, group: Group, upto: int) -> int:
    """Count the matching events from the group's start up to an offset."""
    total = 0
    for position, span in enumerate(group.spans):
        low, high = group.floor if position == 0 else span.low, min(upto, span.high)
        if high > low:
            total += counts.wanted(group.stream, span, high) - counts.wanted(group.stream, span, low)
    return total


def passed_above(tx: Transaction, group: Group, lanes: Sequence[CursorRow], target: int) -> int | None:
    """Return how many events above an offset a group's lanes have passed, from the tally.

    None if the tally cannot tell: the group filters by header, or a lane has not got that far.
    """
    cursors = [group.starts[lane.lane] if lane.cursor is None else lane.cursor for lane in lanes]
    if any(span.headers is not None for span in group.spans) or min(cursors) < target:
        return None
    horizon = max(tx.horizon(), *cursors)
    edges = [(group.stream, edge) for edge in (*_edges(group), target)]
    counts = _Counts(tx, group.stream, horizon, edges)
    passed = group.matched_before + sum(lane.total or 0 for lane in lanes)
    if target >= group.floor:
        return int(passed - _population(counts, group, target))
    first = group.spans[0]
    older = counts.wanted(group.stream, first, group.floor) - counts.wanted(group.stream, first, target)
    return int(passed + older)


@dataclass(frozen=True, slots=True)
class _Look:
    """What was read about one group."""

    group: Group
    fact: Row
    lanes: list[Row]
    rows: list[Row]
    consumed: int
    beyond: int
    exact: bool
    removed: tuple[int, int] | None  # of jobs: how many finished and how many dead ones are gone

    def count(self, *states: str, ahead: bool | None = None) -> int:
        return sum(int(row.rows) for row in self.rows if row.state in states and ahead in (None, bool(row.ahead)))

    @property
    def untouched(self) -> int:
        """Events above the cursors without a row."""
        return self.beyond - self.count("PENDING", "CLAIMED", "PUBLISHED", "DEAD", ahead=True)

    def stats(self, oldest: datetime | None, now: datetime) -> GroupStats:
        circuit = self.group.circuit
        pending = max(0, self.untouched + int(self.fact.returned) + self.count("PENDING"))
        claimed = int(self.fact.open) + self.count("CLAIMED")
        unfinished_behind = self.count("PENDING", "CLAIMED", "DEAD", ahead=False)
        in_ranges = int(self.fact.returned) + int(self.fact.open)
        published = max(0, self.consumed - in_ranges - unfinished_behind + self.count("PUBLISHED", ahead=True))
        purged = sum(int(row.rows) for row in self.rows if row.state == "DEAD" and row.hidden)
        dead = self.count("DEAD") - purged
        return GroupStats(
            self.group.stream,
            self.group.group_name,
            pending,
            claimed,
            published,
            dead,
            pending + claimed,
            (now - oldest).total_seconds() if oldest is not None and (pending or claimed) else None,
            self.group.paused,
            self.group.pause_reason,
            int(self.fact.leases),
            round(float(self.fact.rate), 3),
            self.exact,
            None if circuit is None else circuit.last_error or "unavailable",
            None if self.removed is None else published + self.removed[0],
            None if self.removed is None else dead + purged + self.removed[1],
            purged,
        )


def _oldest(tx: Transaction, looks: list[_Look], horizon: int) -> dict[int, datetime]:
    """Return when each group's oldest unfinished event was created.

    It may have a row of its own, be in a returned or claimed range, or be the first match above its lane's cursor.
    """
    found: dict[int, list[datetime]] = defaultdict(list)
    first = {
        look.group.group_id: min(int(row.first) for row in look.rows if row.state in ("PENDING", "CLAIMED"))
        for look in looks
        if look.count("PENDING", "CLAIMED")
    }
    if first:
        created = {row.offset: row.created_at for row in tx.rows("stats.created", offsets=sorted(set(first.values())))}
        for group_id, offset in first.items():
            if offset in created:
                found[group_id].append(created[offset])
    held = [look.group.group_id for look in looks if int(look.fact.returned) or int(look.fact.open)]
    if held:
        for row in tx.rows("stats.oldest_held", ids=held):
            if row.created_at is not None:
                found[row.group_id].append(row.created_at)
    beyond = [look for look in looks if look.untouched > 0]
    if beyond:
        _look_beyond(tx, beyond, horizon, found)
    return {group_id: min(moments) for group_id, moments in found.items() if moments}


def _look_beyond(tx: Transaction, looks: list[_Look], horizon: int, found: dict[int, list[datetime]]) -> None:
    after = {look.group.group_id: min(int(lane.cursor) for lane in look.lanes) for look in looks}
    for _ in range(_FAR_LOOKS):
        asked = [_asked(look, after[look.group.group_id]) for look in looks]
        there: dict[int, list[datetime]] = defaultdict(list)
        for row in tx.rows("stats.oldest_beyond", rows=asked, upto=horizon, scan=limits.SCAN):
            if row.created_at is not None:
                there[row.group_id].append(row.created_at)
        for group_id, moments in there.items():
            found[group_id].append(min(moments))
        looks = [look for look in looks if look.group.group_id not in there]
        looks = [look for look in looks if _further(tx, look, after, horizon)]
        if not looks:
            return


def _asked(look: _Look, after: int) -> dict[str, object]:
    group = look.group
    cursors = [int(lane.cursor) for lane in look.lanes]
    return {
        "group_id": group.group_id,
        "stream": group.stream,
        "lanes": group.lanes,
        "after": after,
        "cursors": cursors,
    }


def _further(tx: Transaction, look: _Look, after: dict[int, int], horizon: int) -> bool:
    """Move to where the last look ended; return whether there is anything after it."""
    group = look.group
    last = tx.one("source.nth", stream=group.stream, low=after[group.group_id], high=horizon, skip=limits.SCAN - 1)
    if last is not None:
        after[group.group_id] = int(last.offset)
    return last is not None

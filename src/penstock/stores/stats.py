"""Stats: counts per state, lag and age of every group, in time that does not grow with the log."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.core import limits
from penstock.stores import groups
from penstock.stores.base import Row, Transaction
from penstock.stores.groups import Group, Span

Counts = Mapping[tuple[str, str], int]


@dataclass(frozen=True, slots=True)
class StreamStats:
    """One stream: how many events it has, up to the horizon."""

    stream: str
    events: int


@dataclass(frozen=True, slots=True)
class GroupStats:
    """One group: deliveries per state, what it has not finished, and how old that is."""

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


@dataclass(frozen=True, slots=True)
class Stats:
    """What `log.stats()` answers."""

    horizon: int
    streams: tuple[StreamStats, ...]
    groups: tuple[GroupStats, ...]


class _Counter:
    """Events per stream and type up to an offset, asked once per offset."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._known: dict[int, Counts] = {}

    def upto(self, offset: int) -> Counts:
        if offset <= 0:
            return {}
        if offset not in self._known:
            rows = self._tx.rows("stats.count", upto=offset)
            self._known[offset] = {(row.stream, row.event_type): int(row.events) for row in rows}
        return self._known[offset]

    def wanted(self, stream: str, span: Span, offset: int) -> int:
        """How many events up to an offset the binding's types cover."""
        pattern = None if span.type_regex is None else re.compile(span.type_regex)
        return sum(
            events
            for (name, event_type), events in self.upto(offset).items()
            if name == stream and (pattern is None or pattern.match(event_type))
        )


def stats(tx: Transaction) -> Stats:
    """Everything at once; nothing is written."""
    horizon = tx.horizon()
    now = tx.now()
    counter = _Counter(tx)
    known = groups.every(tx)
    facts = {row.group_id: row for row in tx.rows("stats.groups", now=now)}
    rows: dict[int, list[Row]] = {}
    for row in tx.rows("stats.rows"):
        rows.setdefault(row.group_id, []).append(row)
    per_group = []
    for group in known:
        fact = facts[group.group_id]
        lanes = tx.rows("claim.lanes", group_id=group.group_id, lanes=group.lanes)
        consumed = group.matched_before + sum(lane.total or 0 for lane in lanes)
        beyond, exact = _beyond(tx, counter, group, consumed, horizon)
        oldest = tx.one("stats.oldest", group_id=group.group_id, stream=group.stream)
        age = None if oldest is None or oldest.created_at is None else (now - oldest.created_at).total_seconds()
        per_group.append(_group(group, fact, rows.get(group.group_id, []), consumed, beyond, exact, age))
    totals: dict[str, int] = {}
    for (stream, _), events in counter.upto(horizon).items():
        totals[stream] = totals.get(stream, 0) + events
    streams = tuple(StreamStats(stream, events) for stream, events in sorted(totals.items()))
    return Stats(horizon, streams, tuple(per_group))


def _beyond(tx: Transaction, counter: _Counter, group: Group, consumed: int, horizon: int) -> tuple[int, bool]:
    """Wanted events that no lane's cursor has reached."""
    if any(span.headers is not None for span in group.spans):
        most = limits.SCAN
        row = tx.one("stats.beyond", stream=group.stream, group_id=group.group_id, upto=horizon, most=most)
        assert row is not None
        return int(row.wanted), row.looked < most
    total = 0
    for position, span in enumerate(group.spans):
        low, high = group.floor if position == 0 else span.low, min(horizon, span.high)
        if high > low:
            total += counter.wanted(group.stream, span, high) - counter.wanted(group.stream, span, low)
    return max(0, total - consumed), True


def _group(
    group: Group, fact: Row, rows: list[Row], consumed: int, beyond: int, exact: bool, age: float | None
) -> GroupStats:
    def count(*states: str, ahead: bool | None = None) -> int:
        return sum(int(row.rows) for row in rows if row.state in states and ahead in (None, bool(row.ahead)))

    every_state = ("PENDING", "CLAIMED", "PUBLISHED", "DEAD")
    unfinished_behind = count("PENDING", "CLAIMED", "DEAD", ahead=False)
    pending = beyond - count(*every_state, ahead=True) + int(fact.returned) + count("PENDING")
    claimed = int(fact.open) + count("CLAIMED")
    published = consumed - int(fact.returned) - int(fact.open) - unfinished_behind + count("PUBLISHED", ahead=True)
    return GroupStats(
        group.stream,
        group.group_name,
        max(0, pending),
        claimed,
        max(0, published),
        count("DEAD"),
        max(0, pending) + claimed,
        age if pending > 0 or claimed else None,
        group.paused,
        group.pause_reason,
        int(fact.leases),
        round(int(fact.recent) / 60, 3),
        exact,
    )

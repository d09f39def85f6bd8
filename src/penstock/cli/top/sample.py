"""What `penstock top` shows: one look at the log, and what earlier looks add to it."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from penstock.log.log import Log
    from penstock.log.problems import Problem
    from penstock.log.runs import RunInfo
    from penstock.log.standing import BlockedKey, Lane, OpenLease
    from penstock.log.stats import GroupStats

_MINUTES_EVERY: Final = 15.0  # seconds: they are recorded once a minute
_POINTS: Final = 30
_RATE_SECONDS: Final = 10.0
_KEPT: Final = 60  # own samples of a group
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Line:
    """A group in the list."""

    stats: GroupStats
    retrying: int
    rate: float
    minutes: tuple[float | None, ...]  # what it finished, bucket by bucket

    @property
    def name(self) -> str:
        return f"{self.stats.stream}/{self.stats.group}"


@dataclass(frozen=True, slots=True)
class Detail:
    """A group in full."""

    lanes: list[Lane]
    leases: list[OpenLease]
    keys: list[BlockedKey]


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at the log."""

    at: datetime
    horizon: int
    events: int
    lines: list[Line]
    problems: list[Problem]
    runs: list[RunInfo]
    detail: Detail | None = None


@dataclass(slots=True)
class Sampler:
    """Looks at a log, and remembers enough to say how fast things are."""

    log: Log
    _seen: dict[Key, deque[tuple[float, int]]] = field(
        default_factory=lambda: defaultdict(lambda: deque(maxlen=_KEPT)), init=False
    )
    _minutes: dict[Key, tuple[int | None, ...]] = field(default_factory=dict, init=False)
    _minutes_at: float = field(default=-_MINUTES_EVERY, init=False)

    def look(self, group: Key | None = None) -> Sample:
        """Look once; with a group, at its lanes and leases, too."""
        found, runs = self.log.survey(), self.log.runs()
        now = time.monotonic()
        if now - self._minutes_at >= _MINUTES_EVERY:
            self._minutes, self._minutes_at = self.log.sparklines(points=_POINTS), now
        lines = []
        for one in found.stats.groups:
            key = (one.stream, one.group)
            self._seen[key].append((now, one.published))
            lines.append(Line(one, found.retrying.get(key, 0), self._rate(one), self._bars(key)))
        events = sum(one.events for one in found.stats.streams)
        known = group is not None and any((one.stats.stream, one.stats.group) == group for one in lines)
        detail = self._detail(*group) if known and group is not None else None
        return Sample(found.now, found.stats.horizon, events, lines, [*found.problems], runs, detail)

    def _detail(self, stream: str, group: str) -> Detail:
        log = self.log
        return Detail(log.lanes(stream, group), log.open_leases(stream, group), log.blocked_keys(stream, group))

    def _rate(self, one: GroupStats) -> float:
        """Of the last seconds; before there are two looks, what the leases say."""
        seen = self._seen[one.stream, one.group]
        now, last = seen[-1]
        then, first = next((at for at in seen if now - at[0] <= _RATE_SECONDS), seen[-1])
        return one.published_per_second if now <= then else max(0.0, (last - first) / (now - then))

    def _bars(self, key: Key) -> tuple[float | None, ...]:
        """What was recorded; our own samples where nobody records."""
        recorded = self._minutes.get(key, ())
        if any(one is not None for one in recorded):
            return recorded
        seen = [*self._seen[key]]
        return tuple(float(after[1] - before[1]) for before, after in pairwise(seen))[-_POINTS:]

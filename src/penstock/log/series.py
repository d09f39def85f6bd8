"""Series: what groups did and how they stood, over time. Nothing is written, and no event is counted again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.core import limits, timeline
from penstock.core.event import check_name, check_time
from penstock.core.group import Group
from penstock.core.timeline import Window
from penstock.errors import InvalidInput
from penstock.log import groups
from penstock.log.record_metrics import FLOWS, GAUGES, Values, add, uncounted, values_of
from penstock.log.stats import events_in
from penstock.log.transact import look
from penstock.stores.base import Row, Store, Transaction


@dataclass(frozen=True, slots=True)
class Point:
    """What happened in a bucket, and the largest samples in it. None: not known, or nobody sampled."""

    at: datetime  # where the bucket begins
    published: int | None = None
    failed: int | None = None
    dead: int | None = None
    released: int | None = None
    appended: int | None = None  # to the stream
    lag: int | None = None
    oldest_seconds: float | None = None
    pending: int | None = None
    claimed: int | None = None
    retrying: int | None = None
    dead_letters: int | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """The numbers of a group, or of a stream, in buckets of `step_seconds`."""

    stream: str
    group: str | None
    since: datetime
    until: datetime
    step_seconds: int
    points: tuple[Point, ...]


def series(store: Store, stream: str, group: str | None, since: Any, until: Any, step_seconds: Any) -> Series:
    """Return a series; without a group only what was appended to the stream."""
    name = check_name(stream, "stream")
    begin, end = check_time(since, "since"), check_time(until, "until")

    def work(tx: Transaction) -> Series:
        now = tx.now()
        known = None if group is None else groups.get(tx, name, group)
        window = timeline.window(now, begin, end, step_seconds)
        found = _Reading(tx, window, now)
        flows, gauges = ({}, {}) if known is None else (found.flows(known), found.gauges(known))
        appended = found.appended(name)
        points = tuple(
            Point(window.since + window.step * n, appended=appended.get(n), **flows.get(n, {}), **gauges.get(n, {}))
            for n in range(window.points)
        )
        return Series(name, group, window.since, window.until, window.step_seconds, points)

    return look(store, work)


class _Reading:
    """Reads the numbers of a window, by bucket."""

    def __init__(self, tx: Transaction, window: Window, now: datetime) -> None:
        self._tx, self._window, self._now = tx, window, now
        self._range = {"since": window.since, "until": window.until, "step": window.step_seconds}
        self._last = tx.one("metric.last")
        self._rounds = {int(row.bucket): bool(row.at_start) for row in tx.rows("series.rounds", **self._range)}
        self._values: dict[int, Values] = {}

    def flows(self, group: Group) -> dict[int, Values]:
        """Return the flows of every bucket in which they are known: of recorded minutes, and of leases since."""
        ids = [group.group_id]
        rows = self._tx.rows("series.group", group_id=group.group_id, **self._range)
        self._values = {int(row.bucket): values_of(row) for row in rows}
        mark = next(iter(self._tx.rows("metric.marks", ids=ids, others=False)), None)
        if mark is not None and mark.minute_at is not None:
            self._add(mark.minute_at, values_of(mark))
        rest = uncounted(self._tx, ids, limits.METRIC_UNCOUNTED).get(group.group_id)
        for at, flows in {} if rest is None else rest.minutes.items():
            self._add(at, flows)
        missing = rest is not None and rest.fresh >= limits.METRIC_UNCOUNTED
        known = _known(self._window, self._last, mark if missing else None, missing=missing)
        nothing = dict.fromkeys(FLOWS, 0)
        found = {n: nothing | self._values.get(n, {}) for n in range(self._window.points) if known(n)}
        return {n: {name: values[name] for name in FLOWS} for n, values in found.items()}

    def _add(self, at: datetime, values: Values) -> None:
        bucket = self._window.bucket(at)
        if bucket is not None:
            add(self._values.setdefault(bucket, {}), values)

    def gauges(self, group: Group) -> dict[int, Values]:
        """Return the samples of buckets in which somebody sampled; call it after `flows`."""
        idle = {name: 0 for name in GAUGES} | {"oldest_seconds": 0.0}
        there = {n for n in self._rounds if self._window.since + self._window.step * (n + 1) > group.created_at}
        sampled = {n for n, values in self._values.items() if "lag" in values}
        return {
            n: idle | {name: value for name, value in self._values.get(n, {}).items() if name in GAUGES}
            for n in there | sampled
        }

    def appended(self, stream: str) -> dict[int, int]:
        """Return what was appended in buckets whose beginning and end were sampled, and since the last sample."""
        window = self._window
        rows = self._tx.rows("series.stream", stream=stream, **self._range)
        counts = {int(row.bucket): int(row.appended) for row in rows}
        found = {n: counts.get(n, 0) for n in range(window.points) if self._rounds.get(n) and self._rounds.get(n + 1)}
        newest = window.bucket(self._now)
        if newest is not None and self._rounds.get(newest):
            found[newest] = counts.get(newest, 0) + self._since_sample(stream)
        return found

    def _since_sample(self, stream: str) -> int:
        def events(block: str) -> int:
            return sum(int(row.events) for row in self._tx.rows(block, stream=stream))

        return max(0, events_in(self._tx, stream) + events("metric.removed") - events("metric.sampled"))


def _known(window: Window, last: Row | None, mark: Row | None, *, missing: bool) -> Callable[[int], bool]:
    """Return the rule which buckets have all their flows. `missing`: there are more leases to count than were read."""
    began = None if last is None else last.began_at
    recorded = None if last is None or mark is None or mark.behind else last.recorded_at

    def known(n: int) -> bool:
        start = window.since + window.step * n
        if began is not None and start < began:
            return False
        return not missing or (recorded is not None and start + window.step <= recorded)

    return known


def sparklines(store: Store, since: Any, points: Any) -> dict[tuple[str, str], tuple[int | None, ...]]:
    """Return what every group finished, in so many buckets; None where it is not recorded yet."""
    begin = check_time(since, "since")
    if isinstance(points, bool) or not isinstance(points, int) or not 1 <= points <= limits.SERIES_POINTS:
        raise InvalidInput(f"points must be a whole number between 1 and {limits.SERIES_POINTS}.")

    def work(tx: Transaction) -> dict[tuple[str, str], tuple[int | None, ...]]:
        window = timeline.recent(tx.now(), begin, points)
        last = tx.one("metric.last")
        counts: dict[tuple[int, int], int] = {}
        where = {"since": window.since, "until": window.until, "step": window.step_seconds}
        for row in tx.rows("series.published", **where):
            counts[int(row.group_id), int(row.bucket)] = int(row.published)
        behind = {int(row.group_id) for row in tx.rows("series.behind")}
        recorded = [last is not None and _recorded(window, n, last) for n in range(points)]
        found = {}
        for row in tx.rows("metric.groups"):
            group_id = int(row.group_id)
            known = group_id not in behind
            found[row.stream, row.group_name] = tuple(
                counts.get((group_id, n), 0) if known and there else None for n, there in enumerate(recorded)
            )
        return found

    return look(store, work)


def _recorded(window: Window, n: int, last: Row) -> bool:
    start = window.since + window.step * n
    ended = last.recorded_at is not None and start + window.step <= last.recorded_at
    return ended and (last.began_at is None or last.began_at <= start)

"""Prune: remove events that every group has finished, and what was recorded about them.

Events that a group has not finished stay, and, by default, dead letters. Each batch is one short transaction under the
locks of the stream's groups, so that nothing becomes unfinished in the meantime. Each transaction also adjusts the
tally and the groups' counts, so that counts are always exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from penstock.core import limits
from penstock.core.event import check_time
from penstock.core.group import Group
from penstock.core.job import GROUP, PREFIX
from penstock.errors import InvalidInput
from penstock.log import audit, checks, groups, positions, record_metrics
from penstock.log.selection import Moved
from penstock.log.transact import look, transact
from penstock.stores.base import Row, Store, Transaction


def prune(
    store: Store, stream: str, *, before: datetime | None, upto: int | None, keep_dead: bool, by: str | None
) -> Moved:
    """Remove events created before a time, or up to an offset. If interrupted, what was removed stays removed."""
    if (before is None) == (upto is None):
        raise InvalidInput("Pass either before= (a time) or upto= (an offset).")
    moment, author = check_time(before, "before"), checks.author(by)
    position = checks.count(upto, "upto") if moment is None else moment

    def target(tx: Transaction) -> int:
        """Stop at the horizon, above which events may still appear. Jobs that nobody has claimed from yet all wait."""
        if stream.startswith(PREFIX) and groups.find(tx, stream, GROUP) is None:
            return 0
        return min(positions.offset_of(tx, stream, position), tx.horizon())

    record_metrics.record(store)  # leases that are counted before they go need not be counted on their way out
    return Moved(_Pruning(stream, look(store, target), keep_dead, by=author).run(store))


@dataclass(slots=True)
class Batch:
    """Removes the events of a stream up to an offset, batch by batch."""

    stream: str
    upto: int
    keep_dead: bool = True
    dead_before: datetime | None = None  # dead letters that died before are not kept
    at: int = 0

    def remove_next(self, tx: Transaction) -> tuple[int, int]:
        """Remove the next batch; returns how many events were removed, and where it ends."""
        low = self.at
        for one in groups.every(tx, self.stream):
            groups.locked(tx, one.stream, one.group_name)
        tx.run("prune.lock")  # no group is created and nothing is counted while events are removed
        known = groups.every(tx, self.stream)
        high, kept, types = self.examine(tx, known)
        removed = sum(int(row.events) for row in types)
        if removed:
            self._count_out(tx, known, types, kept, low, high)
            where = {"stream": self.stream, "low": low, "high": high}
            if self.stream.startswith(PREFIX):
                self._add_totals(tx, known, removed, kept, where)
            self._remove(tx, known, kept, max(int(row.last) for row in types), where)
        return removed, high

    def examine(self, tx: Transaction, known: list[Group]) -> tuple[int, list[int], list[Row]]:
        """Return where the next batch ends, which of its events are kept, and how many go of each type."""
        high = self._reach(tx, known, self.at)
        where = {"stream": self.stream, "low": self.at, "high": high}
        dead = {"keep_dead": self.keep_dead, "dead_before": self.dead_before}
        kept = sorted({row.offset for row in tx.rows("prune.needed", **dead, **where)})
        return high, kept, tx.rows("prune.types", kept=kept, **where)

    def _remove(self, tx: Transaction, known: list[Group], kept: list[int], last: int, where: dict[str, Any]) -> None:
        tx.run("prune.range", kept=kept, last=last, **where)
        if self.stream.startswith(PREFIX):
            tx.run("prune.jobs", low=where["low"], high=where["high"])

    def _reach(self, tx: Transaction, known: list[Group], low: int) -> int:
        """Return where a batch ends: after a number of events, or earlier at a step of the tally or a binding."""
        last = tx.one("source.nth", stream=self.stream, low=low, high=self.upto, skip=limits.PRUNE_BATCH - 1)
        high = self.upto if last is None else int(last.offset)
        edges = {int(row.upto) for row in tx.rows("prune.steps", stream=self.stream, low=low, high=high)}
        for group in known:
            edges |= {group.floor, *(span.low for span in group.spans)}
        return min((edge for edge in edges if low < edge < high), default=high)

    def _count_out(
        self, tx: Transaction, known: list[Group], types: list[Row], kept: list[int], low: int, high: int
    ) -> None:
        counts = {row.event_type: int(row.events) for row in types}
        names, numbers = list(counts), list(counts.values())
        mark = tx.one("tally.last")
        if mark is not None and high <= mark.upto:
            tx.run("prune.tally_now", stream=self.stream, types=names, counts=numbers)
            tx.run("prune.tally_steps", stream=self.stream, types=names, counts=numbers, high=high)
        passed = {group.group_id: self._wanted(tx, group, counts, kept, low, high) for group in known}
        fewer = {group_id: events for group_id, events in passed.items() if events}
        if fewer:
            tx.run("prune.passed", ids=list(fewer), counts=list(fewer.values()))

    def _add_totals(
        self, tx: Transaction, known: list[Group], removed: int, kept: list[int], where: dict[str, Any]
    ) -> None:
        """Remember how many finished and dead jobs are removed, so that the totals of their type do not fall."""
        for group in known:
            if group.group_name == GROUP:
                row = tx.one(
                    "prune.dead_jobs", group_id=group.group_id, kept=kept, low=where["low"], high=where["high"]
                )
                dead = 0 if row is None else int(row.jobs)
                tx.run("jobs.gone", group_id=group.group_id, completed=removed - dead, exhausted=dead)

    def _wanted(
        self, tx: Transaction, group: Group, counts: dict[str, int], kept: list[int], low: int, high: int
    ) -> int:
        """Count the removed events that a group has passed: those that match its binding, from its start on."""
        if low < group.floor:
            return 0
        span = group.span_after(low)
        if span.headers is not None:
            row = tx.one(
                "prune.wanted",
                stream=self.stream,
                low=low,
                high=high,
                kept=kept,
                binding=span.binding,
                type_regex=span.type_regex,
                headers=span.headers,
            )
            return 0 if row is None else int(row.events)
        return span.counted(counts)


@dataclass(slots=True)
class _Pruning(Batch):
    """One prune of a stream, and of what was recorded about its events."""

    by: str = ""
    removed: int = 0

    def run(self, store: Store) -> int:
        """Prune everything; returns how many events were removed."""
        while self.at < self.upto:
            removed, self.at = transact(store, self.remove_next)
            self.removed += removed
        while transact(store, self._leases):
            pass
        transact(store, self._tidy)
        return self.removed

    def _leases(self, tx: Transaction) -> int:
        """Remove some ended leases without events, except those that hold a lane's cursor; returns how many."""
        removed = 0
        for group in groups.every(tx, self.stream):
            row = tx.one("prune.leases", group_id=group.group_id, most=limits.PRUNE_BATCH)
            removed += 0 if row is None else int(row.removed)
        return removed

    def _tidy(self, tx: Transaction) -> None:
        tx.run("prune.lock")
        thin(tx, self.stream, self.upto)
        tx.run("prune.drop_empty")
        tx.run("prune.fingerprints")
        tx.run("prune.runs", before=tx.now() - timedelta(days=limits.RUN_KEPT_DAYS))
        detail = {"upto": self.upto, "keep_dead": self.keep_dead}
        audit.record(tx, self.by, "prune", stream=self.stream, count=self.removed, detail=detail)


def thin(tx: Transaction, stream: str, upto: int) -> None:
    """Keep only those counts at earlier marks between which enough events are left."""
    drop, before = [], 0
    for row in tx.rows("source.counted", stream=stream, low=0, high=upto):
        if int(row.events) - before < limits.TALLY_GROWTH:
            drop.append(int(row.upto))
        else:
            before = int(row.events)
    if drop:
        tx.run("prune.drop_steps", stream=stream, marks=drop)

"""Prune: remove events that every group has finished with, and what was recorded about them.

It goes around what is still needed: what a group has not finished, and, unless told otherwise, dead letters. One short
transaction per batch, under the locks of the stream's groups, so that nothing becomes unfinished in the meantime.
Counts stay true in every one of them: the tally counts events that are there, and so does what groups have passed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

import orjson

from penstock.core import limits
from penstock.stores import groups
from penstock.stores.base import Row, Transaction
from penstock.stores.groups import Group

T = TypeVar("T")


class Run(Protocol):
    """Runs a piece of work in a transaction of its own."""

    def __call__(self, work: Callable[[Transaction], T]) -> T: ...


@dataclass(slots=True)
class Pruning:
    """One prune of a stream up to an offset, batch by batch."""

    stream: str
    upto: int
    keep_dead: bool
    by: str
    at: int = 0
    removed: int = 0

    def run(self, transaction: Run) -> int:
        """All of it; `transaction` runs a piece of work in a transaction of its own. Returns how many events went."""
        while self.at < self.upto:
            removed, self.at = transaction(self._batch)
            self.removed += removed
        while transaction(self._leases):
            pass
        transaction(self._tidy)
        return self.removed

    # --- events --------------------------------------------------------------------------------------------------

    def _batch(self, tx: Transaction) -> tuple[int, int]:
        """How many events of the next batch went, and where it ends."""
        low = self.at
        for one in groups.every(tx, self.stream):
            groups.locked(tx, one.stream, one.group_name)
        tx.run("prune.lock")  # nobody creates a group, or counts, while events are being removed
        known = groups.every(tx, self.stream)
        high = self._reach(tx, known, low)
        where = {"stream": self.stream, "low": low, "high": high}
        kept = sorted({row.offset for row in tx.rows("prune.needed", keep_dead=self.keep_dead, **where)})
        types = tx.rows("prune.types", kept=kept, **where)
        removed = sum(int(row.events) for row in types)
        if removed:
            self._count_out(tx, known, types, kept, low, high)
            tx.run("prune.range", kept=kept, last=max(int(row.last) for row in types), **where)
        return removed, high

    def _reach(self, tx: Transaction, known: list[Group], low: int) -> int:
        """Where a batch ends: after so many events, and at the latest where counts or a group's interest change."""
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

    def _wanted(
        self, tx: Transaction, group: Group, counts: dict[str, int], kept: list[int], low: int, high: int
    ) -> int:
        """How many of the events that go a group has passed: those it wanted, from its start on."""
        if low < group.floor:
            return 0
        span = groups.span_at(group, low)
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
        if span.type_regex is None:
            return sum(counts.values())
        pattern = re.compile(span.type_regex)
        return sum(events for event_type, events in counts.items() if pattern.match(event_type))

    # --- what was recorded about them ------------------------------------------------------------------------------

    def _leases(self, tx: Transaction) -> int:
        """Ended leases of which nothing is left, but for those that say how far a lane has got. Some at a time."""
        removed = 0
        for group in groups.every(tx, self.stream):
            row = tx.one("prune.leases", group_id=group.group_id, most=limits.PRUNE_BATCH)
            removed += 0 if row is None else int(row.removed)
        return removed

    def _tidy(self, tx: Transaction) -> int:
        tx.run("prune.lock")
        self._thin(tx)
        tx.run("prune.fingerprints")
        tx.run("prune.runs", before=tx.now() - timedelta(days=limits.RUN_KEPT_DAYS))
        detail = orjson.dumps({"upto": self.upto, "keep_dead": self.keep_dead}).decode()
        tx.run(
            "audit.add",
            by=self.by,
            action="prune",
            stream=self.stream,
            group_name=None,
            count=self.removed,
            detail=detail,
            now=tx.now(),
        )
        return 0

    def _thin(self, tx: Transaction) -> None:
        """Of the counts at earlier marks keep those between which enough is left."""
        drop, before = [], 0
        for row in tx.rows("source.counted", stream=self.stream, low=0, high=self.upto):
            if int(row.events) - before < limits.TALLY_GROWTH:
                drop.append(int(row.upto))
            else:
                before = int(row.events)
        if drop:
            tx.run("prune.drop_steps", stream=self.stream, marks=drop)
        tx.run("prune.drop_empty")


def target(tx: Transaction, stream: str, position: int | datetime) -> int:
    """How far to prune: never beyond the horizon, where events may still appear."""
    return min(groups.position(tx, stream, position), tx.horizon())

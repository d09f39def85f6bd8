"""History checkers: find violations of the guarantees in what workers saw.

Record what was appended, claimed, settled and done; `check` returns every violation: lost and unexpected deliveries,
duplicated effects, two holders of one event, wrong order per key, wrong attempt counts, and unfinished work.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any


@dataclass(frozen=True, slots=True)
class Violation:
    """One violation of a guarantee."""

    kind: str
    detail: str


@dataclass(frozen=True, slots=True)
class Holding:
    """One lease as its holder saw it."""

    lease: int
    worker: str
    begin: datetime
    end: datetime  # when it was settled or released, else when it expired
    attempts: Mapping[Any, int]


@dataclass
class History:
    """Everything that happened to the events of one group; safe to fill from many threads."""

    ordered: bool = False
    appended: dict[Any, tuple[int, str | None]] = field(default_factory=dict)  # id -> (offset, key)
    holdings: list[Holding] = field(default_factory=list)
    successes: list[Any] = field(default_factory=list)  # ids in the order in which their settles committed
    effects: Counter[Any] = field(default_factory=Counter)
    final: dict[Any, str] = field(default_factory=dict)  # id -> state at the end
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def append(self, event_id: Any, offset: int, key: str | None = None) -> None:
        """Record that the log acknowledged this event."""
        with self._lock:
            self.appended[event_id] = (offset, key)

    def hold(self, lease: int, worker: str, begin: datetime, end: datetime, attempts: Mapping[Any, int]) -> None:
        """Record that a worker held these events from `begin` to `end`."""
        with self._lock:
            self.holdings.append(Holding(lease, worker, begin, end, dict(attempts)))

    def succeed(self, event_ids: Iterable[Any]) -> None:
        """Record that a settle that published these events committed."""
        with self._lock:
            self.successes.extend(event_ids)

    def effect(self, event_id: Any) -> None:
        """Record that an effect of this event was found in the database."""
        with self._lock:
            self.effects[event_id] += 1

    def end(self, states: Mapping[Any, str]) -> None:
        """Record the state of every delivery after the last fault."""
        self.final = dict(states)

    def check(self) -> list[Violation]:
        """Return every violation; an empty list if there is none."""
        return [
            *self._lost_and_unexpected(),
            *self._duplicated_effects(),
            *self._two_holders(),
            *self._order(),
            *self._attempts(),
            *self._liveness(),
        ]

    def _lost_and_unexpected(self) -> Iterable[Violation]:
        for event_id in self.appended.keys() - self.final.keys():
            yield Violation("lost", f"{event_id} was acknowledged and is missing")
        seen = self.final.keys() | {one for holding in self.holdings for one in holding.attempts}
        for event_id in seen - self.appended.keys():
            yield Violation("unexpected", f"{event_id} was never appended")

    def _duplicated_effects(self) -> Iterable[Violation]:
        for event_id, count in self.effects.items():
            if count > 1:
                yield Violation("duplicated effect", f"{event_id} took effect {count} times")
        for event_id, state in self.final.items():
            if self.effects and state == "PUBLISHED" and not self.effects[event_id]:
                yield Violation("lost effect", f"{event_id} is PUBLISHED without its effect")

    def _two_holders(self) -> Iterable[Violation]:
        held: dict[Any, list[Holding]] = {}
        for holding in self.holdings:
            for event_id in holding.attempts:
                held.setdefault(event_id, []).append(holding)
        for event_id, holdings in held.items():
            ordered = sorted(holdings, key=lambda one: (one.begin, one.lease))
            for earlier, later in pairwise(ordered):
                if later.begin < earlier.end:
                    detail = f"{event_id} was held by {earlier.worker} and {later.worker} at {later.begin}"
                    yield Violation("two holders", detail)

    def _order(self) -> Iterable[Violation]:
        if not self.ordered:
            return
        highest: dict[str, int] = {}
        seen: set[Any] = set()
        for event_id in self.successes:
            offset, key = self.appended[event_id]
            if key is None or event_id in seen:
                continue
            seen.add(event_id)
            if offset < highest.get(key, 0):
                yield Violation("order", f"{event_id} of {key!r} first succeeded after offset {highest[key]}")
            highest[key] = max(offset, highest.get(key, 0))

    def _attempts(self) -> Iterable[Violation]:
        numbers: dict[Any, list[int]] = {}
        for holding in sorted(self.holdings, key=lambda one: one.lease):
            for event_id, attempt in holding.attempts.items():
                numbers.setdefault(event_id, []).append(attempt)
        for event_id, seen in numbers.items():
            if seen != sorted(set(seen)):
                yield Violation("attempts", f"{event_id} was claimed with attempts {seen}")

    def _liveness(self) -> Iterable[Violation]:
        for event_id, state in self.final.items():
            if state not in ("PUBLISHED", "DEAD"):
                yield Violation("liveness", f"{event_id} is still {state}")

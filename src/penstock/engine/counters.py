"""Counters of what an engine has done."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from penstock.core.observe import Claimed, LeaseEnded, LeaseGone, Observed, ProcessesDied, StoreAway

NAMES = (
    "leases",
    "published",
    "failed",
    "dead",
    "released",
    "deaths",  # handler processes that died while working on an event
    "lost",  # leases that were lost before their settle
    "store_errors",  # times the database could not be reached
)


class Counting:
    """Counters with these names; thread-safe."""

    names: Sequence[str]

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def _add(self, **counts: int) -> None:
        with self._lock:
            self._counts.update(counts)

    def snapshot(self) -> dict[str, int]:
        """Return all counts as of now."""
        with self._lock:
            return {name: self._counts[name] for name in self.names}


class Counters(Counting):
    """Counters of one group: an observer."""

    names = NAMES

    def __call__(self, event: Observed) -> None:
        match event:
            case Claimed():
                self._add(leases=1)
            case LeaseEnded(counts=one):
                self._add(published=one.published, failed=one.failed, dead=one.dead, released=one.released)
            case LeaseGone():
                self._add(lost=1)
            case ProcessesDied(count=count):
                self._add(deaths=count)
            case StoreAway():
                self._add(store_errors=1)
            case _:
                pass


def total(groups: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Add up the counts of all groups."""
    counts: Counter[str] = Counter()
    for one in groups:
        counts.update(one)
    return {name: counts[name] for name in NAMES}

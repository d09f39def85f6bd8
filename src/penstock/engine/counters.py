"""What an engine has done so far."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping

from penstock.core.observe import Claimed, LeaseEnded, LeaseGone, Observed, ProcessesDied, StoreAway

NAMES = (
    "leases",
    "published",
    "failed",
    "dead",
    "released",
    "deaths",  # processes of handlers that ended while they worked on an event
    "lost",  # leases that were somebody else's when they were to be settled
    "store_errors",  # times the database could not be reached
)


class Counters:
    """Counts of one group; an observer, safe to call from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

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

    def _add(self, **counts: int) -> None:
        with self._lock:
            self._counts.update(counts)

    def snapshot(self) -> dict[str, int]:
        """All counts, as of now."""
        with self._lock:
            return {name: self._counts[name] for name in NAMES}


def total(groups: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The counts of all groups together."""
    counts: Counter[str] = Counter()
    for one in groups:
        counts.update(one)
    return {name: counts[name] for name in NAMES}

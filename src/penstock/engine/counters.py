"""What an engine has done so far."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping

NAMES = (
    "leases",
    "published",
    "failed",
    "dead",
    "released",
    "deaths",  # processes of handlers that ended under an event
    "lost",  # leases that were somebody else's when they were to be settled
    "store_errors",  # times the database could not be reached
)


class Counters:
    """Counts of one group; safe to fill from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, **counts: int) -> None:
        """So many more of each."""
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

"""Counters of what became of a source's entries."""

from __future__ import annotations

import threading
from collections import Counter

from penstock.core.observe import BatchOvertaken, EntriesIngested, Observed, SourceAway, StoreAway

NAMES = (
    "stored",
    "known",  # delivered again, and recognised
    "rejected",
    "dropped",  # by the mapping
    "gone",  # pending entries that were deleted at the source
    "overtaken",  # batches that were not stored, because another ingester went on
    "source_errors",  # times the source could not be reached
    "store_errors",  # times the database could not be reached
)


class IngestCounters:
    """Counters of one source: an observer; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def __call__(self, event: Observed) -> None:
        match event:
            case EntriesIngested(counts=one, gone=gone):
                self._add(stored=one.stored, known=one.known, rejected=one.rejected, dropped=one.dropped, gone=gone)
            case BatchOvertaken():
                self._add(overtaken=1)
            case SourceAway():
                self._add(source_errors=1)
            case StoreAway():
                self._add(store_errors=1)
            case _:
                pass

    def _add(self, **counts: int) -> None:
        with self._lock:
            self._counts.update(counts)

    def snapshot(self) -> dict[str, int]:
        """Return all counts as of now."""
        with self._lock:
            return {name: self._counts[name] for name in NAMES}

"""Counters of what became of a source's entries."""

from __future__ import annotations

from penstock.core.observe import BatchOvertaken, EntriesIngested, Observed, SourceAway, StoreAway
from penstock.engine.counters import Counting

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


class IngestCounters(Counting):
    """Counters of one source: an observer."""

    names = NAMES

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

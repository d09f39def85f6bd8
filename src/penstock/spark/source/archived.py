"""Events that are only in an archive, read together with those in the log, each once.

A task reads its range from the log first, and then, as far as the stream was pruned by then, what it has not seen from
the archived files. An event is pruned after it was archived, so it is found in one of the two places whenever that is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from penstock.errors import ArchiveDamaged
from penstock.log.archives import files, record
from penstock.log.archives.files import OFFSET, PlacedFile, Which
from penstock.log.transact import Transaction, look
from penstock.spark.logs import log_at
from penstock.spark.source.filters import Wanted

Range = tuple[int, int]
_TRIES = 3  # at a file that is replaced while it is opened


def pruned_files(tx: Transaction, stream: str, wanted: Wanted, low: int, high: int) -> list[PlacedFile]:
    """Return the files with wanted events of (low, high], as far as events of the stream were pruned."""
    pruned = tx.one("rewind.pruned", stream=stream)
    top = min(high, 0 if pruned is None else int(pruned.upto))
    if top <= low:
        return []
    return record.files_of(tx, stream, low, top, since=wanted.since, until=wanted.until)


def ranges(tx: Transaction, stream: str, wanted: Wanted) -> list[Range]:
    """Return disjoint ranges of offsets, each with the events of about one file; what lies between has none."""
    high = 2**62 if wanted.upto is None else wanted.upto
    pruned = tx.one("rewind.pruned", stream=stream)
    top = min(high, 0 if pruned is None else int(pruned.upto))
    found = [one.file for one in pruned_files(tx, stream, wanted, wanted.after, high)]
    edges = sorted({max(file.low, wanted.after) for file in found} | {min(file.high, top) for file in found})
    return [
        (low, high)
        for low, high in pairwise(edges)
        if low < high and any(file.low < high and file.high > low for file in found)
    ]


def together(logged: list[Range], archived: list[Range]) -> list[Range]:
    """Return the ranges of archived files, and what the ranges of the log have besides."""
    left = list(archived)
    for low, high in logged:
        at = low
        for start, end in archived:
            if end <= at or start >= high:
                continue
            if start > at:
                left.append((at, start))
            at = max(at, end)
        if at < high:
            left.append((at, high))
    return sorted(left)


@dataclass(frozen=True, slots=True)
class Reading:
    """How a task reads a range."""

    url: str
    stream: str
    wanted: Wanted
    schema: Any

    def read(self, low: int, high: int, in_log: Callable[[Any], Iterator[Any]]) -> Iterator[Any]:
        """Read the wanted events of (low, high]: what `in_log` finds, then what is only in an archive."""
        import pyarrow as pa

        names = self.schema.names
        wide = self.schema if OFFSET in names else self.schema.append(pa.field(OFFSET, pa.int64()))
        seen: list[Any] = [pa.array([], pa.int64())]
        for batch in in_log(wide):
            seen.append(batch.column(OFFSET))
            yield batch.select(names)
        for batch in self._archived(low, high, wide, seen):
            yield batch.select(names)

    def _archived(self, low: int, high: int, wide: Any, seen: list[Any]) -> Iterator[Any]:
        import pyarrow as pa
        import pyarrow.compute as pc

        done: set[tuple[int, str]] = set()
        for _ in range(_TRIES):
            log = log_at(self.url)
            found = look(log.store, lambda tx: pruned_files(tx, self.stream, self.wanted, low, high))
            try:
                for one in found:
                    if (one.archive_id, one.file.path) in done:
                        continue
                    known = pa.chunked_array(seen).combine_chunks()
                    for batch in files.read(one, wide.names, self._which(low, high)):
                        new = batch.filter(pc.invert(pc.is_in(batch.column(OFFSET), known)))
                        if len(new):
                            seen.append(new.column(OFFSET))
                            yield _cast(new, wide)
                    done.add((one.archive_id, one.file.path))
                return
            except FileNotFoundError as error:
                missing = error  # replaced, because an event was erased: look again
        raise ArchiveDamaged(f"A file of the archive is gone: {missing}.") from missing

    def _which(self, low: int, high: int) -> Which:
        wanted = self.wanted
        return Which(low, high, wanted.types, wanted.since, wanted.until)


def _cast(batch: Any, schema: Any) -> Any:
    import pyarrow as pa

    arrays = []
    for field in schema:
        array = batch.column(field.name)
        if pa.types.is_map(field.type) and array.type != field.type:
            array = pa.array(array.to_pylist(), field.type)
        arrays.append(array if array.type == field.type else array.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)

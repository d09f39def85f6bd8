"""Archived files: what their footers say, and their events."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from penstock.errors import ArchiveDamaged, ArchiveUnavailable
from penstock.log.archives.places import Place, to_disk

SCHEMA_VERSION: Final = 1  # of the columns of a file
OFFSET, CREATED = "offset", "created_at"


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """A file of an archive: its events are in (low, high]."""

    path: str
    low: int
    high: int
    events: int
    bytes: int
    footer_sha256: str
    first_at: datetime
    last_at: datetime


@dataclass(frozen=True, slots=True)
class PlacedFile:
    """A file of an archive, with where to find it."""

    archive_id: int
    place: str
    file: ArchiveFile


@dataclass(frozen=True, slots=True)
class Which:
    """Which events of a file: in (low, high], of these types, created from `since` on and before `until`."""

    low: int
    high: int
    types: Sequence[str] | None = None
    since: datetime | None = None
    until: datetime | None = None


def describe(place: Place, path: str) -> ArchiveFile | None:
    """Return what the footer of a file says; None if it has no events."""
    from pyarrow import parquet

    with place.files.open_input_file(place.path(path)) as source:
        footer, size = _footer(source)
        metadata = parquet.ParquetFile(source).metadata
        if not metadata.num_rows:
            return None
        offsets, times = _extremes(metadata, OFFSET), _extremes(metadata, CREATED)
    return ArchiveFile(path, offsets[0] - 1, offsets[1], metadata.num_rows, size, footer, times[0], times[1])


def read(one: PlacedFile, columns: Sequence[str], which: Which, place: Place | None = None) -> Iterator[Any]:
    """Read some columns of the wanted events as record batches, in offset order.

    `ArchiveDamaged` if it is not the file that was archived.
    """
    from pyarrow import parquet

    where = place or Place(one.place)
    needed = list(dict.fromkeys([*columns, OFFSET, "event_type", CREATED]))
    with _opened(one, where) as source:
        file = parquet.ParquetFile(source)
        groups = [
            number
            for number in range(file.metadata.num_row_groups)
            if _overlaps(file.metadata.row_group(number), which)
        ]
        for batch in file.iter_batches(row_groups=groups, columns=needed):
            found = batch.filter(_condition(batch, which))
            if len(found):
                yield found.select(list(columns))


def _footer(source: Any) -> tuple[str, int]:
    """Return the hash of a file's footer, which says where everything in the file is, and the file's size."""
    size = source.size()
    source.seek(size - 8)
    length = int.from_bytes(source.read(4), "little")
    source.seek(size - 8 - length)
    return hashlib.sha256(source.read(length)).hexdigest(), size


def _column(group: Any, name: str) -> Any:
    return next(
        group.column(place).statistics
        for place in range(group.num_columns)
        if group.column(place).path_in_schema == name
    )


def _extremes(metadata: Any, name: str) -> tuple[Any, Any]:
    found = [_column(metadata.row_group(number), name) for number in range(metadata.num_row_groups)]
    return min(one.min for one in found), max(one.max for one in found)


def _overlaps(group: Any, which: Which) -> bool:
    offsets = _column(group, OFFSET)
    return bool(offsets.max > which.low and offsets.min <= which.high)


def _condition(batch: Any, which: Which) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    offsets, times = batch.column(OFFSET), batch.column(CREATED)
    wanted = pc.and_(pc.greater(offsets, which.low), pc.less_equal(offsets, which.high))
    if which.types is not None:
        wanted = pc.and_(wanted, pc.is_in(batch.column("event_type"), pa.array(list(which.types), pa.string())))
    if which.since is not None:
        wanted = pc.and_(wanted, pc.greater_equal(times, pa.scalar(which.since, times.type)))
    if which.until is not None:
        wanted = pc.and_(wanted, pc.less(times, pa.scalar(which.until, times.type)))
    return wanted


# --- one event --------------------------------------------------------------------------------------------------------


def find_event(one: PlacedFile, place: Place, event_id: str) -> tuple[int, str | None] | None:
    """Return the offset and metadata of an event in a file; None if it is not there, which most footers tell."""
    import pyarrow.compute as pc
    from pyarrow import parquet

    with _opened(one, place) as source:
        file = parquet.ParquetFile(source)
        for number in range(file.metadata.num_row_groups):
            ids = _column(file.metadata.row_group(number), "event_id")
            if ids is not None and ids.has_min_max and not ids.min <= event_id <= ids.max:
                continue
            rows = file.read_row_group(number, columns=["event_id", OFFSET, "metadata"])
            found = rows.filter(pc.equal(rows.column("event_id"), event_id)).to_pylist()
            if found:
                return int(found[0][OFFSET]), found[0]["metadata"]
    return None


def copy_erased(
    one: PlacedFile, place: Place, event_id: str, emptied: Callable[[str, str | None], tuple[bytes, str]]
) -> str:
    """Write a copy of a file beside it in which one event has no payload; returns its path."""
    import pyarrow as pa
    from pyarrow import parquet

    path = f"{copies_of(one.file.path)}{uuid.uuid4().hex[:8]}.parquet"
    with _opened(one, place) as source, place.files.open_output_stream(place.path(path)) as target:
        file = parquet.ParquetFile(source)
        compression = file.metadata.row_group(0).column(0).compression.lower()
        with parquet.ParquetWriter(target, file.schema_arrow, compression=compression) as writer:
            for number in range(file.metadata.num_row_groups):
                rows = file.read_row_group(number)
                ids = rows.column("event_id").to_pylist()
                if event_id in ids:
                    at = ids.index(event_id)
                    new = emptied(rows.column("content_type")[at].as_py(), rows.column("metadata")[at].as_py())
                    for name, value in zip(("payload", "metadata"), new, strict=True):
                        values = rows.column(name).to_pylist()
                        values[at] = value
                        place_in = rows.schema.get_field_index(name)
                        field = rows.schema.field(place_in)
                        rows = rows.set_column(place_in, field, pa.array(values, field.type))
                writer.write_table(rows)
    if place.on_disk:
        to_disk(place.path(path))
    return path


def copies_of(path: str) -> str:
    """Return how the paths of a file's copies begin."""
    stem, _, _ = path.removesuffix(".parquet").partition("~")
    return f"{stem}~{hashlib.sha256(path.encode()).hexdigest()[:8]}-"


@contextmanager
def _opened(one: PlacedFile, place: Place) -> Iterator[Any]:
    """Open a file; `ArchiveDamaged` if it is not the one that was archived, `FileNotFoundError` if there is none."""
    path = place.path(one.file.path)
    try:
        source = place.files.open_input_file(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ArchiveUnavailable(f"{path} cannot be read: {error}.") from error
    with source:
        if source.size() != one.file.bytes or _footer(source)[0] != one.file.footer_sha256:
            raise ArchiveDamaged(f"{path} is not the file that was archived.")
        yield source

"""Archives as the log knows them: begun, then done with the list of their files, in one transaction."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any, Final

import orjson

from penstock.core.event import check_name, check_time
from penstock.core.job import PREFIX
from penstock.errors import InvalidInput
from penstock.log import audit, checks, positions
from penstock.log.archives.files import SCHEMA_VERSION, ArchiveFile, PlacedFile
from penstock.log.archives.places import Place, check_place
from penstock.log.transact import look, transact
from penstock.stores.base import Row, Store, Transaction

MANIFEST: Final = "_manifest.json"
_FORMAT: Final = "penstock-archive"
_DONE: Final = "done"


@dataclass(frozen=True, slots=True)
class Archive:
    """A copy of the events of a stream in (low, high], in the files of a folder."""

    id: int
    stream: str
    place: str
    low: int
    high: int
    complete_from: int  # it and its predecessors in this place hold every event above this offset
    state: str  # writing, done
    folder: str | None
    version: int
    events: int
    bytes: int
    by: str
    began_at: datetime
    ended_at: datetime | None

    @property
    def done(self) -> bool:
        """Whether it is complete."""
        return self.state == _DONE


def archives(store: Store, stream: str | None) -> list[Archive]:
    """Return all archives, of one stream or of the log, in the order in which they were begun."""
    if stream is not None:
        check_name(stream, "stream")
    return [_of(row) for row in look(store, lambda tx: tx.rows("archive.every", stream=stream))]


def begin(
    store: Store, stream: str, place: str, *, before: datetime | None, upto: int | None, by: str | None
) -> Archive | None:
    """Begin the next archive of a stream in a place, or go on with one that was interrupted; None if there is nothing.

    It begins where the last one there ended, and goes up to an offset or to what was created before a time, never above
    the horizon.
    """
    if check_name(stream, "stream").startswith(PREFIX):
        raise InvalidInput("Jobs are not archived: how long they stay is said of their type.")
    if before is not None and upto is not None:
        raise InvalidInput("Pass either before= (a time) or upto= (an offset).")
    where, author = check_place(place), checks.author(by)
    moment = check_time(before, "before")
    cut: str | int | datetime = "end" if moment is None else moment
    if upto is not None:
        cut = checks.count(upto, "upto")

    def work(tx: Transaction) -> Archive | None:
        row = tx.one("archive.unfinished", stream=stream, place=where)
        if row is not None:
            return _of(row)
        tx.run("prune.lock")  # whoever erases an event sees this archive, or this archive sees the erased event
        last = tx.one("archive.last", stream=stream, place=where)
        pruned = tx.one("rewind.pruned", stream=stream)
        gone = 0 if pruned is None else int(pruned.upto)
        low = 0 if last is None else int(last.high)
        high = min(positions.offset_of(tx, stream, cut), tx.horizon())
        if high <= low:
            return None
        whole = gone if last is None or gone > low else int(last.complete_from)
        found = {"stream": stream, "place": where, "low": low, "high": high, "complete_from": whole}
        made = tx.one("archive.begin", by=author, now=tx.now(), **found)
        return None if made is None else _of(made)

    return transact(store, work)


def finish(store: Store, one: Archive, folder: str, files: list[ArchiveFile]) -> Archive:
    """Record that an archive is complete; the answer is the one that counts, if another process was quicker."""

    def work(tx: Transaction) -> Archive:
        row = tx.one("archive.locked", id=one.id)
        assert row is not None
        known = _of(row)
        if known.done:
            return known
        for file in files:
            tx.run("archive.add_file", archive_id=one.id, **asdict(file))
        events, size = sum(file.events for file in files), sum(file.bytes for file in files)
        tx.run("archive.finish", id=one.id, folder=folder, events=events, bytes=size, now=tx.now())
        detail = {"archive": one.id, "place": one.place, "low": one.low, "high": one.high}
        audit.record(tx, one.by, "archive", stream=one.stream, count=events, detail=detail)
        done = tx.one("archive.locked", id=one.id)
        assert done is not None
        return _of(done)

    return transact(store, work)


def files_of(
    tx: Transaction,
    stream: str,
    low: int,
    high: int,
    *,
    place: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> list[PlacedFile]:
    """Return the files with events of a stream in (low, high], created in a time, in the order of their offsets."""
    rows = tx.rows("archive.files", stream=stream, low=low, high=high, place=place, since=since, until=until)
    return [PlacedFile(int(row.archive_id), row.place, _file(row)) for row in rows]


def write_manifest(tx: Transaction, place: Place, archive_id: int) -> None:
    """Write the list of an archive's files beside them, as the log has it now: who has no log reads it."""
    row = tx.one("archive.locked", id=archive_id)
    assert row is not None and row.folder is not None
    one = _of(row)
    files = [_file(each) for each in tx.rows("archive.files_of", archive_id=archive_id)]
    place.write(f"{one.folder}/{MANIFEST}", manifest(one, files))


def manifest(one: Archive, files: list[ArchiveFile]) -> bytes:
    """Return the manifest of an archive as JSON; paths are relative to the place."""
    said = {
        "format": _FORMAT,
        "manifest_version": 1,
        "version": one.version,  # grows when files are replaced
        "schema_version": SCHEMA_VERSION,
        "archive": one.id,
        "stream": one.stream,
        "low": one.low,
        "high": one.high,
        "complete_from": one.complete_from,
        "events": sum(file.events for file in files),
        "files": [{**asdict(file), "schema_version": SCHEMA_VERSION} for file in files],
    }
    return orjson.dumps(said, option=orjson.OPT_INDENT_2)


def read_manifest(place: Place, folder: str) -> list[ArchiveFile]:
    """Return the files that the manifest in a folder names."""
    said = orjson.loads(place.read(f"{folder}/{MANIFEST}"))
    return [_of_manifest(file) for file in said["files"]]


def _of_manifest(said: dict[str, Any]) -> ArchiveFile:
    known = {one.name: said[one.name] for one in fields(ArchiveFile)}
    return ArchiveFile(**known | {name: datetime.fromisoformat(said[name]) for name in ("first_at", "last_at")})


def _file(row: Row) -> ArchiveFile:
    return ArchiveFile(**{name.name: getattr(row, name.name) for name in fields(ArchiveFile)})


def _of(row: Row) -> Archive:
    return Archive(**{name.name: getattr(row, name.name) for name in fields(Archive)})

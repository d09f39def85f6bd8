"""Erase: the payload of one event is gone, in the log and in archives; the event stays, with a mark.

Archived files are never changed: another file takes the place of one, first on the storage, then, in the transaction
that erases the event, in the log; then the old one is deleted. Whatever cannot be rewritten is found before that.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from typing import Any

import orjson

from penstock.core.codec import JSON, decode_object
from penstock.core.event import ERASED, check_text, parse_event_id
from penstock.errors import ArchiveDamaged, ArchiveUnavailable, InFlight, MissingField, PenstockError, UnknownEvent
from penstock.log import audit, checks
from penstock.log.archives import files, record
from penstock.log.archives.attempts import drop_attempts
from penstock.log.archives.files import ArchiveFile, PlacedFile
from penstock.log.archives.places import Place
from penstock.log.transact import look, transact
from penstock.stores.base import Row, Store, Transaction

_SAID = "erased"  # instead of what an error said
_TRIES = 5


@dataclass(frozen=True, slots=True)
class Erased:
    """The result of an erasure."""

    event_id: uuid.UUID
    stream: str
    offset: int
    in_log: bool  # whether the event was in the log, or only in an archive
    files: tuple[str, ...]  # archived files that were rewritten, by their old paths
    already: bool  # whether it had been erased before, everywhere


@dataclass(frozen=True, slots=True)
class _Found:
    """A file with the event in it."""

    one: PlacedFile
    stream: str
    offset: int
    erased: bool


class _Changed(Exception):
    """What was found is not so any more."""


def erase(
    store: Store, event_id: Any, reason: str, by: str | None, check: Callable[[str], None] | None = None
) -> Erased:
    """Replace the payload of an event by an empty one, in the log and in every archived file."""
    known, author = parse_event_id(event_id), checks.author(by)
    why = check_text(reason, "reason")
    if not why:
        raise MissingField("reason is missing: the audit keeps why a payload was erased.")
    sweep(store)
    for _ in range(_TRIES):
        row = look(store, lambda tx: tx.one("erase.find", event_id=known))
        searched, found = _search(store, known, row)
        if row is None and not found:
            raise UnknownEvent(f"There is no event {known}, neither in the log nor in an archive.")
        if check is not None:
            check(found[0].stream if row is None else str(row.stream))
        written = _rewrite(known, [one for one in found if not one.erased], now=look(store, lambda tx: tx.now()))
        try:
            swap = partial(_swap, known=known, searched=searched, found=found, written=written, why=why, by=author)
            answer = transact(store, swap)
        except BaseException as error:
            _drop(written)
            if isinstance(error, _Changed):
                continue
            raise
        sweep(store)
        for place, stream in {(one.one.place, one.stream) for one in found}:
            drop_attempts(store, Place(place), stream)  # they may hold the event, too
        return answer
    raise InFlight(f"The archives of the event {known} keep changing.")


def sweep(store: Store) -> None:
    """Delete files that were replaced, after their archive's manifest says so."""
    for row in look(store, lambda tx: tx.rows("archive.waste")):
        place = Place(row.place)
        transact(store, partial(record.write_manifest, place=place, archive_id=row.archive_id))
        folder, _, name = row.path.rpartition("/")
        place.drop(row.path)
        place.drop(f"{folder}/.{name}.crc")
        _drop_copies(store, place, row)
        transact(store, partial(_swept, row=row))


def _drop_copies(store: Store, place: Place, row: Row) -> None:
    """Drop other copies of a file that was replaced: whoever was killed before they took its place left them."""
    kept = {one.path for one in look(store, lambda tx: tx.rows("archive.files_of", archive_id=row.archive_id))}
    for path in place.listed(row.path.rpartition("/")[0]):
        if path.startswith(files.copies_of(row.path)) and path not in kept:
            place.drop(path)


def _swept(tx: Transaction, row: Row) -> None:
    tx.run("archive.wasted", archive_id=row.archive_id, path=row.path)


# --- files ------------------------------------------------------------------------------------------------------------


def _search(store: Store, known: uuid.UUID, row: Row | None) -> tuple[set[tuple[int, str]], list[_Found]]:
    """Find the event in archived files: by its offset, or, if it is not in the log, by its id; also says where it was
    looked for.
    """
    found = []
    if row is None:
        placed = [(one.stream, _placed(one)) for one in look(store, lambda tx: tx.rows("archive.all_files"))]
    else:
        offset = int(row.offset)
        placed = [
            (row.stream, one) for one in look(store, lambda tx: record.files_of(tx, row.stream, offset - 1, offset))
        ]
    places: dict[str, Place] = {}
    for stream, one in placed:
        place = places.setdefault(one.place, Place(one.place))
        try:
            there = files.find_event(one, place, str(known))
        except FileNotFoundError as error:
            raise ArchiveDamaged(f"{one.place}/{one.file.path} is gone.") from error
        if there is not None:
            offset, metadata = there
            found.append(_Found(one, stream, offset, ERASED in decode_object(metadata)))
    return {(one.archive_id, one.file.path) for _, one in placed}, found


def _placed(row: Row) -> PlacedFile:
    names = ArchiveFile.__dataclass_fields__
    return PlacedFile(int(row.archive_id), row.place, ArchiveFile(**{name: getattr(row, name) for name in names}))


def _rewrite(known: uuid.UUID, found: list[_Found], now: datetime) -> list[tuple[_Found, ArchiveFile]]:
    """Write files without the payload beside those with it; `ArchiveUnavailable` names one that cannot be."""
    written: list[tuple[_Found, ArchiveFile]] = []
    try:
        for one in found:
            place = Place(one.one.place)
            path = files.copy_erased(one.one, place, str(known), partial(_emptied, now=now))
            made = files.describe(place, path)
            assert made is not None
            written.append((one, made))
    except (OSError, PenstockError) as error:
        _drop(written)
        names = ", ".join(f"{one.one.place}/{one.one.file.path}" for one in found)
        raise ArchiveUnavailable(f"The event is in {names}, and not all of these can be rewritten: {error}.") from error
    return written


def _drop(written: list[tuple[_Found, ArchiveFile]]) -> None:
    for one, made in written:
        Place(one.one.place).drop(made.path)


def _emptied(content_type: str, metadata: str | None, now: datetime) -> tuple[bytes, str]:
    """Return what stands for a payload that is gone, and the metadata with the mark."""
    marked = {**decode_object(metadata), ERASED: now.isoformat()}
    return empty_of(content_type), orjson.dumps(marked).decode()


def empty_of(content_type: str) -> bytes:
    """Return an empty payload that handlers of this content type can still decode."""
    kind = content_type.partition(";")[0].strip().lower()
    return b"{}" if kind == JSON or kind.endswith("+json") else b""


# --- the log ----------------------------------------------------------------------------------------------------------


def _swap(
    tx: Transaction,
    known: uuid.UUID,
    searched: set[tuple[int, str]],
    found: list[_Found],
    written: list[tuple[_Found, ArchiveFile]],
    why: str,
    by: str,
) -> Erased:
    """Erase the event in the log, and put the new files in the places of the old ones."""
    tx.run("prune.lock")  # no archive begins, and nothing is restored, meanwhile
    row = tx.one("erase.find", event_id=known)
    if row is None and not found:
        raise _Changed
    stream, offset = (found[0].stream, found[0].offset) if row is None else (str(row.stream), int(row.offset))
    busy = tx.one("erase.unfinished", stream=stream, offset=offset)
    if busy is not None:
        raise InFlight(f"An archive of {stream!r} in {busy.place} is being written: complete it first.")
    now_there = {(one.archive_id, one.file.path) for one in record.files_of(tx, stream, offset - 1, offset)}
    if now_there - searched or {(one.one.archive_id, one.one.file.path) for one in found} - now_there:
        raise _Changed
    in_log = row is not None and ERASED not in decode_object(row.metadata)
    if row is not None and in_log:
        mark = tx.now().isoformat()
        tx.rows("erase.event", event_id=known, payload=empty_of(row.content_type), mark=mark, said=_SAID)
    for one, made in written:
        old = one.one.file
        tx.run(
            "archive.replace_file",
            archive_id=one.one.archive_id,
            old=old.path,
            grown=made.bytes - old.bytes,
            **asdict(made),
        )
    paths = tuple(one.one.file.path for one, _ in written)
    if in_log or paths:
        detail = {"event_id": str(known), "offset": offset, "reason": why, "files": list(paths)}
        audit.record(tx, by, "erase", stream=stream, count=1, detail=detail)
    return Erased(known, stream, offset, row is not None, paths, already=not in_log and not paths)

"""Ingest: events from another system, stored with how far it has been read, or with the ids of its entries."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial

from penstock.core import limits
from penstock.core.entry_ids import EntryId, furthest, pack, parse_key, ranges, unpack
from penstock.core.event import NewEvent
from penstock.core.ingested import EntryBatch, FileBatch, Ingested, Made, Move
from penstock.errors import DuplicateMismatch, PenstockError
from penstock.log import files
from penstock.log.transact import look, transact
from penstock.stores.base import IdTaken, Store, Transaction
from penstock.stores.rows import IngestPosition, IngestRange

Append = Callable[[Transaction, Made, Collection[int]], Ingested]


class Overtaken(Exception):
    """Another ingester went on, or may have taken the entries over; nothing was stored."""


class Ingests:
    """What the log keeps about sources. `source` is the name of one, the same in every process."""

    def __init__(self, store: Store) -> None:
        self._store = store

    # --- sources with positions ----------------------------------------------------------------------------------

    def positions(self, source: str) -> dict[str, int]:
        """Return the next position to read of every part that has been begun."""
        return look(self._store, lambda tx: _positions(tx, source))

    def beginnings(self, source: str) -> dict[str, datetime]:
        """Return when the parts of a source were begun: one whose row was removed has begun anew."""
        rows: list[IngestPosition] = look(self._store, lambda tx: tx.rows("ingest.positions", source=source))
        return {row.part: row.began_at for row in rows}

    def begin(self, source: str, starts: Mapping[str, int]) -> dict[str, int]:
        """Store where parts begin, unless somebody has; return the positions of all parts."""

        def work(tx: Transaction) -> dict[str, int]:
            now = tx.now()
            for part, position in sorted(starts.items()):
                tx.run("ingest.begin", source=source, part=part, position=position, now=now)
            return _positions(tx, source)

        return transact(self._store, work)

    def store_moves(self, source: str, moves: Sequence[Move], made: Made) -> Ingested:
        """Store the events of a batch and move the positions, in one transaction; `Overtaken` if one is elsewhere."""

        def work(tx: Transaction, append: Append) -> Ingested:
            now = tx.now()
            for one in sorted(moves):
                if not tx.run("ingest.move", source=source, now=now, **one._asdict()):
                    raise Overtaken(f"part {one.part} is not at {one.expected} any more")
            return append(tx, made, range(len(made)))

        return _store(self._store, work)

    def store_files(self, batch: FileBatch) -> Ingested:
        """Append what was staged of files, and record them, in one transaction; `Overtaken` if one was recorded."""
        if not files.append_files(self._store, batch.into, batch.names, batch.staged):
            raise Overtaken("another ingester has taken one of the files")
        stored = sum(one.events for one in batch.staged) - batch.rejected
        return Ingested(stored, rejected=batch.rejected, dropped=batch.dropped)

    # --- sources whose entries are remembered --------------------------------------------------------------------

    def is_known(self, source: str) -> bool:
        """Return whether entries of a source may have been stored before."""
        return look(self._store, lambda tx: tx.one("ingest.known_source", source=source)) is not None

    def add(self, source: str) -> None:
        """Note that entries of a source will be stored."""
        transact(self._store, lambda tx: tx.run("ingest.add_source", source=source, now=tx.now()))

    def store_entries(self, source: str, batch: EntryBatch, made: Made) -> Ingested:
        """Store the events of entries that are new and remember their ids, in one transaction.

        `Overtaken` if the batch is so old that another ingester may have taken it over.
        """

        def work(tx: Transaction, append: Append) -> Ingested:
            now = tx.now()
            if tx.one("ingest.lock", source=source) is None:
                tx.run("ingest.add_source", source=source, now=now)
            _acknowledge(tx, batch.acknowledged)
            known = _remembered(tx, source, batch.ids)
            new = {one: place for place, one in enumerate(batch.ids) if one not in known}
            done = append(tx, made, new.values())
            remembered = [_remember(tx, source, part) for part in ranges(new)]
            if not batch.ours():
                raise Overtaken("the batch is too old")
            return done._replace(known=done.known + len(batch.ids) - len(new), ranges=remembered)

        return _store(self._store, work)

    def acknowledge(self, ranges: Sequence[int]) -> None:
        """Note that the source has been told that it need not send the entries of these ranges again."""
        if ranges:
            transact(self._store, lambda tx: _acknowledge(tx, ranges))

    def forget(self, source: str, days: float, pending: Callable[[EntryId, EntryId], bool]) -> bool:
        """Forget entries that were acknowledged so many days ago; True if there is more to do.

        A process may die before it notes an acknowledgement: `pending` tells whether the source would send entries
        between two ids again.
        """
        most = limits.INGEST_FORGET

        def unsure(tx: Transaction) -> list[IngestRange]:
            before = tx.now() - timedelta(seconds=limits.INGEST_SETTLED_SECONDS)
            return tx.rows("ingest.unacknowledged", source=source, before=before, limit=most)

        found = look(self._store, unsure)
        self.acknowledge([one.id for one in found if not pending(parse_key(one.low), parse_key(one.high))])

        def work(tx: Transaction) -> int:
            return tx.run("ingest.forget", source=source, before=tx.now() - timedelta(days=days), limit=most)

        return transact(self._store, work) == most


def _positions(tx: Transaction, source: str) -> dict[str, int]:
    rows: list[IngestPosition] = tx.rows("ingest.positions", source=source)
    return {row.part: row.position for row in rows}


def _acknowledge(tx: Transaction, ranges: Sequence[int]) -> None:
    if ranges:
        tx.run("ingest.acknowledge", ids=list(ranges), now=tx.now())


def _remembered(tx: Transaction, source: str, ids: Sequence[EntryId]) -> set[EntryId]:
    """Return which of these entries, and others, are stored."""
    found: set[EntryId] = set()
    for part in ranges(ids):
        low, high = part[0], part[-1]
        for row in tx.rows("ingest.remembered", source=source, low=low.key, high=high.key, furthest=furthest(high).key):
            found.update(unpack(row.entries))
    return found


def _remember(tx: Transaction, source: str, ids: Sequence[EntryId]) -> int:
    row = tx.one("ingest.remember", source=source, low=ids[0].key, high=ids[-1].key, entries=pack(ids), now=tx.now())
    assert row is not None
    return int(row.id)


# --- appending --------------------------------------------------------------------------------------------------------


def _store(store: Store, work: Callable[[Transaction, Append], Ingested]) -> Ingested:
    """Run the work as if no id were known; then so that known ones are recognised; and if an id is taken by another
    event, so that it is found out which one's.

    Savepoints are left to the last: on SQLite they make an append ten times slower.
    """

    def attempt(append: Append) -> Ingested:
        return transact(store, lambda tx: work(tx, append))

    for append in (_append_new, _append):
        with suppress(IdTaken, DuplicateMismatch):
            return attempt(append)
    return attempt(partial(_append, carefully=True))


def _append_new(tx: Transaction, made: Made, places: Collection[int]) -> Ingested:
    """Append all of them at once, if that can be; `IdTaken` if one is known."""
    if made.columns is None or len(places) < len(made):
        return _append(tx, made, places)
    tx.append(made.columns, unique=True)
    tx.wake()
    return Ingested(len(made))


def _append(tx: Transaction, made: Made, places: Collection[int], carefully: bool = False) -> Ingested:
    """Append the events of these entries; one whose id is taken by another event is rejected, if `carefully`."""
    wanted: list[tuple[int, NewEvent]] = []
    rejected: list[NewEvent] = []
    refused: list[tuple[int, PenstockError]] = []
    by_id: dict[uuid.UUID, NewEvent] = {}
    stored = known = dropped = 0
    for place in places:
        event = made.events[place]
        if event is None:
            dropped += 1
        elif place in made.rejected:
            rejected.append(event)
        elif (first := by_id.setdefault(event.event_id, event)) is event:
            wanted.append((place, event))
        elif (first.stream, first.event_type, first.payload) == (event.stream, event.event_type, event.payload):
            known += 1
        else:
            refused.append((place, DuplicateMismatch(f"Event id {event.event_id} is taken by another event.")))
    for part in _chunks(wanted):
        before = len(refused)
        again = _append_part(tx, part, refused) if carefully else tx.append([one for _, one in part], unique=False)
        known += again
        stored += len(part) - again - (len(refused) - before)
    rejected += [made.reject(place, error) for place, error in refused]
    for part in _chunks([(0, event) for event in rejected]):
        tx.append([event for _, event in part], unique=False)
    if stored or rejected:
        tx.wake()
    return Ingested(stored, known, len(rejected), dropped)


def _chunks(events: Sequence[tuple[int, NewEvent]]) -> Iterator[list[tuple[int, NewEvent]]]:
    """Cut so that no statement grows beyond what a database takes."""
    part: list[tuple[int, NewEvent]] = []
    size = 0
    for one in events:
        if part and size + len(one[1].payload) > limits.INGEST_BATCH_BYTES:
            yield part
            part, size = [], 0
        part.append(one)
        size += len(one[1].payload)
    if part:
        yield part


def _append_part(
    tx: Transaction, part: Sequence[tuple[int, NewEvent]], refused: list[tuple[int, PenstockError]]
) -> int:
    """Append; halve what contains an event whose id is taken until it stands alone. Returns how many were known."""
    try:
        with tx.savepoint():
            return tx.append([event for _, event in part], unique=False)
    except DuplicateMismatch as error:
        if len(part) == 1:
            refused.append((part[0][0], error))
            return 0
        middle = len(part) // 2
        return _append_part(tx, part[:middle], refused) + _append_part(tx, part[middle:], refused)

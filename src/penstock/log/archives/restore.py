"""Restore: put archived events back under their own offsets, so that rewind and replay reach them.

Each batch is one transaction under the locks of the stream's groups; it adjusts the tally and what groups have passed,
so that counts are always exact. What is there already stays as it is: a restore can be interrupted and run again.
"""

from __future__ import annotations

import uuid
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import groupby
from typing import Any

import orjson

from penstock.core import limits
from penstock.core.event import NewEvent, StoredEvent, check_name
from penstock.core.lanes import bucket_of
from penstock.errors import ArchiveDamaged, InvalidInput, NotArchived
from penstock.log import audit, checks, groups
from penstock.log.archives import files, passed, record
from penstock.log.archives.files import PlacedFile, Which
from penstock.log.archives.places import check_place
from penstock.log.claim import look_around
from penstock.log.transact import look, transact
from penstock.stores.base import Store, Transaction

_COLUMNS = (
    *("offset", "event_id", "event_type", "payload", "content_type", "headers", "metadata"),
    *("partition_key", "ordering_key", "available_at", "created_at"),
)


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of a restore."""

    events: int  # that were put back
    present: int  # that were there already
    taken: int  # whose ids were appended again since: these stay in the archive
    pruned_upto: int  # no rewind reaches below it

    def plus(self, more: Restored) -> Restored:
        """Add the counts of a batch."""
        return Restored(
            self.events + more.events, self.present + more.present, self.taken + more.taken, self.pruned_upto
        )


class _Replaced(Exception):
    """A file was replaced after it was read: an event in it was erased."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is restored: (low, high] of a stream that was pruned up to `pruned`, for the `changes`-th time."""

    stream: str
    low: int
    high: int
    pruned: int
    changes: int
    complete_from: int
    files: list[PlacedFile]


def restore(
    store: Store,
    stream: str,
    *,
    source: str | None,
    after: int,
    upto: int | None,
    keep_days: float,
    by: str | None,
) -> Restored:
    """Put back the archived events of a stream in (after, upto]; policies leave them alone for so many days."""
    check_name(stream, "stream")
    low, author = checks.count(after, "after"), checks.author(by)
    most = None if upto is None else checks.count(upto, "upto")
    seconds = checks.seconds(keep_days * 86_400 if isinstance(keep_days, int | float) else keep_days, "keep_days")
    place = None if source is None else check_place(source)
    if most is not None and most <= low:
        raise InvalidInput("upto must be above after.")
    before = 0  # events that were put back before a file was replaced
    while True:
        plan = look(store, lambda tx: _plan(tx, stream, place, low, most))
        if plan is None:
            return Restored(before, 0, 0, 0)
        transact(store, partial(_hold, plan=plan, seconds=seconds))
        done = Restored(before, 0, 0, plan.pruned)
        try:
            for one, batch in _batches(plan):
                more = transact(store, partial(_put, plan=plan, one=one, batch=batch))
                done = done.plus(more)
        except (_Replaced, FileNotFoundError) as error:
            if done.events == before and isinstance(error, FileNotFoundError):
                raise ArchiveDamaged(f"A file of the archive is gone: {error}.") from error
            before = done.events
            continue
        return transact(store, partial(_conclude, plan=plan, done=done, by=author))


def _plan(tx: Transaction, stream: str, place: str | None, low: int, upto: int | None) -> _Plan | None:
    pruned = tx.one("restore.pruned", stream=stream)
    if pruned is None or pruned.upto <= low:
        return None
    high = int(pruned.upto) if upto is None else min(int(pruned.upto), upto)
    found = record.files_of(tx, stream, low, high, place=place)
    chains = [row for row in tx.rows("restore.chains", stream=stream) if place is None or row.place == place]
    if not chains:
        raise NotArchived(f"No archive holds pruned events of {stream!r}{'' if place is None else f' in {place}'}.")
    complete = int(pruned.upto)
    for row in sorted(chains, key=lambda row: -row.high):
        if row.complete_from < complete <= row.high:
            complete = int(row.complete_from)
    return _Plan(stream, low, high, int(pruned.upto), int(pruned.changes), complete, found)


def _hold(tx: Transaction, plan: _Plan, seconds: float) -> None:
    now = tx.now()
    tx.run("restore.forget_holds", stream=plan.stream, now=now)
    if seconds:
        until = now + timedelta(seconds=seconds)
        tx.run("restore.hold", stream=plan.stream, low=plan.low, high=plan.high, until_at=until)


# --- what the files hold ----------------------------------------------------------------------------------------------


def _batches(plan: _Plan) -> Iterator[tuple[PlacedFile, list[StoredEvent]]]:
    which = Which(plan.low, plan.high)
    for one in plan.files:
        batch: list[StoredEvent] = []
        size = 0
        for found in files.read(one, _COLUMNS, which):
            for event in _events(plan.stream, found):
                batch.append(event)
                size += len(event.event.payload)
                if len(batch) == limits.RESTORE_BATCH or size >= limits.RESTORE_BYTES:
                    yield one, batch
                    batch, size = [], 0
        if batch:
            yield one, batch


def _events(stream: str, batch: Any) -> Iterator[StoredEvent]:
    for row in zip(*(batch.column(name).to_pylist() for name in _COLUMNS), strict=True):
        offset, event_id, event_type, payload, content_type, headers, metadata, partition, key, due, created = row
        event = NewEvent(
            stream,
            uuid.UUID(event_id),
            event_type,
            payload,
            content_type,
            orjson.dumps(dict(headers)).decode() if headers is not None else None,
            metadata,
            partition,
            key,
            None if key is None else bucket_of(key),
            due,
        )
        yield StoredEvent(event, offset, created)


# --- putting back -----------------------------------------------------------------------------------------------------


def _put(tx: Transaction, plan: _Plan, one: PlacedFile, batch: Sequence[StoredEvent]) -> Restored:
    """Put one batch of a file back: its events, the tally, and what they are to each group."""
    found = [look_around(tx, group.stream, group.group_name) for group in groups.every(tx, plan.stream)]
    tx.run("prune.lock")  # no group is created and nothing is counted, removed or erased meanwhile
    if tx.one("archive.file", archive_id=one.archive_id, path=one.file.path) is None:
        raise _Replaced
    there = {row.offset for row in tx.rows("restore.present", offsets=[event.offset for event in batch])}
    new = sorted((event for event in batch if event.offset not in there), key=lambda event: event.offset)
    if not new:
        return Restored(0, len(there), 0, 0)
    sights = [passed.look(tx, group, lanes, new) for group, lanes in found]
    back = set(tx.put_back(new))
    put = [event for event in new if event.offset in back]
    if put:
        _count_in(tx, plan.stream, put)
        tx.run("restore.not_removed", stream=plan.stream, events=len(put))
        for sight in sights:
            passed.count_in(tx, sight, put)
        tx.wake()
    return Restored(len(put), len(there), len(new) - len(put), 0)


def _count_in(tx: Transaction, stream: str, put: Sequence[StoredEvent]) -> None:
    """Add events to the tally, as far as the log is counted."""
    mark = tx.one("tally.last")
    counted = 0 if mark is None else int(mark.upto)
    first, last = put[0].offset, put[-1].offset
    edges = sorted(int(row.upto) for row in tx.rows("prune.steps", stream=stream, low=first - 1, high=last))
    for _, part in groupby(put, key=lambda one: bisect_left(edges, one.offset)):
        these = list(part)
        high = these[-1].offset
        if high <= counted:
            counts = Counter(one.event.event_type for one in these)
            names, numbers = list(counts), list(counts.values())
            tx.run("restore.tally_now", stream=stream, types=names, counts=numbers)
            tx.run("restore.tally_steps", stream=stream, types=names, counts=numbers, high=high)


def _conclude(tx: Transaction, plan: _Plan, done: Restored, by: str) -> Restored:
    """Say how far the stream is pruned now; if something was pruned meanwhile, that stays as it was said."""
    for one in groups.every(tx, plan.stream):
        groups.locked(tx, one.stream, one.group_name)
    tx.run("prune.lock")
    left = max(plan.low, plan.complete_from)
    if plan.high >= plan.pruned and left < plan.pruned:
        tx.run("restore.unprune", stream=plan.stream, upto=left, changes=plan.changes)
    now = tx.one("restore.pruned", stream=plan.stream)
    detail = {"after": plan.low, "upto": plan.high, "taken": done.taken}
    audit.record(tx, by, "restore", stream=plan.stream, count=done.events, detail=detail)
    return Restored(done.events, done.present, done.taken, 0 if now is None else int(now.upto))

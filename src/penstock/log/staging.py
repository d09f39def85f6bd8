"""Staging: events from many tasks, appended in one transaction once all of them have arrived.

A task attempt stages its events under its own id. The commit names the successful attempts, appends exactly their
events and records the writer's batch in the same transaction; everything else that was staged is dropped.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.core.event import NewEvent
from penstock.core.limits import STAGED_SECONDS
from penstock.errors import DuplicateMismatch, PenstockError, StagedLost, StaleBatch
from penstock.log.ids import uuid7
from penstock.log.transact import transact
from penstock.stores.base import Store, Transaction

logger = logging.getLogger("penstock")


@dataclass(frozen=True, slots=True)
class Staged:
    """What one task attempt has staged."""

    attempt: uuid.UUID
    events: int


class Staging:
    """One batch of one writer, to be appended to a stream."""

    def __init__(self, store: Store, stream: str, writer: str, batch: int) -> None:
        self._store = store
        self._stream = stream
        self._writer = writer
        self._batch = batch

    def stage(self, chunks: Iterable[Sequence[NewEvent]]) -> Staged:
        """Stage the events of one task attempt, one transaction per chunk, so that none stays open while it waits."""
        attempt = uuid7()
        events = 0
        for chunk in chunks:
            if not chunk:
                continue
            if not events:
                transact(self._store, lambda tx: begin(tx, attempt, self._writer, self._batch))
            self._stage(attempt, chunk)
            events += len(chunk)
        return Staged(attempt, events)

    def _stage(self, attempt: uuid.UUID, chunk: Sequence[NewEvent]) -> None:
        transact(self._store, lambda tx: stage(tx, attempt, chunk))

    def commit(self, named: Sequence[Staged], *, key: str | None = None) -> bool:
        """Append what these attempts have staged, all of it or nothing; False if it was appended before.

        `key` replaces the writer's name if the batch is recorded under another one than its attempts.
        """
        counting = [one for one in named if one.events]
        done = transact(self._store, lambda tx: commit(tx, self._stream, key or self._writer, self._batch, counting))
        try:
            transact(self._store, lambda tx: drop_leftovers(tx, self._writer, self._batch))
        except PenstockError as error:  # the events are appended; the next commit drops what is left over
            logger.warning("could not drop leftovers of a write; the next commit does: %s", error)
        return done

    def abort(self, named: Sequence[Staged]) -> None:
        """Drop what these attempts have staged."""
        transact(self._store, lambda tx: drop(tx, [one.attempt for one in named if one.events]))

    def abort_all(self) -> None:
        """Drop what any attempt has staged for this batch; an attempt that is still staging fails."""
        transact(self._store, lambda tx: drop_leftovers(tx, self._writer, self._batch))


# --- in the caller's transaction --------------------------------------------------------------------------------------


def begin(tx: Transaction, attempt: uuid.UUID, writer: str, batch: int) -> None:
    """Record an attempt, so that its leftovers can be found."""
    tx.run("stage.begin", attempt=attempt, writer=writer, batch=batch, now=tx.now())


def stage(tx: Transaction, attempt: uuid.UUID, events: Sequence[NewEvent]) -> None:
    """Stage events under an attempt that was not given up."""
    if not tx.rows("stage.hold", attempts=[attempt]):
        raise StagedLost("This attempt was given up: its write has ended, or it took longer than a day.")
    tx.stage(events, attempt)


def commit(tx: Transaction, stream: str, writer: str, batch: int, named: Sequence[Staged]) -> bool:
    """Append what these attempts have staged; False if this batch of the writer was appended before."""
    total = sum(one.events for one in named)
    if not tx.run("stage.claim_batch", stream=stream, writer=writer, batch=batch, events=total, now=tx.now()):
        newest = tx.one("stage.newest_batch", stream=stream, writer=writer)
        if newest is not None and newest.batch > batch:
            raise StaleBatch(f"{writer} sent batch {batch} for {stream!r} after it had appended batch {newest.batch}.")
        return False
    append(tx, named)
    return True


def append(tx: Transaction, named: Sequence[Staged]) -> None:
    """Append exactly what these attempts have staged, in the caller's transaction."""
    tx.rows("stage.hold", attempts=[one.attempt for one in named])
    for one in named:
        _append(tx, one)
    drop(tx, [one.attempt for one in named])


def _append(tx: Transaction, staged: Staged) -> None:
    found = tx.one("stage.count", attempt=staged.attempt)
    if found is None or found.events != staged.events:
        there = 0 if found is None else found.events
        raise StagedLost(f"A task staged {staged.events:,} events, but {there:,} are left.")
    if tx.run("stage.append", attempt=staged.attempt, now=tx.now()) == staged.events:
        return
    taken = tx.one("stage.taken", attempt=staged.attempt)
    if taken is not None:
        raise DuplicateMismatch(f"Event id {taken.event_id} is already taken by another event on {taken.stream!r}.")


def drop(tx: Transaction, attempts: Sequence[uuid.UUID]) -> None:
    """Drop what these attempts have staged."""
    if attempts:
        tx.run("stage.drop_attempts", attempts=list(attempts))
        tx.run("stage.drop_rows", attempts=list(attempts))


def drop_leftovers(tx: Transaction, writer: str, batch: int) -> int:
    """Drop the leftovers of a finished batch's failed attempts, and old leftovers of any writer."""
    found = tx.rows("stage.leftovers", writer=writer, batch=batch, now=tx.now(), kept_seconds=STAGED_SECONDS)
    drop(tx, [row.attempt for row in found])
    return len(found)

"""Staging: events from many tasks, appended in one transaction once all of them have arrived.

A task attempt stages its events under its own id. The commit names the successful attempts, appends exactly their
events and records the writer's batch in the same transaction; everything else that was staged is dropped.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from functools import partial

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
        self.writer = writer
        self._batch = batch

    def stage(self, chunks: Iterable[tuple[Sequence[NewEvent], Sequence[int] | None]]) -> Staged:
        """Stage the events of one task attempt, one transaction per chunk, so that none stays open while it waits.

        A chunk is events, and the offsets of those that they were made of, if known.
        """
        attempt = uuid7()
        events = 0
        for chunk, sources in chunks:
            if not chunk:
                continue
            if not events:
                transact(self._store, lambda tx: begin(tx, attempt, self.writer, self._batch))
            transact(self._store, partial(stage, attempt=attempt, events=chunk, sources=sources))
            events += len(chunk)
        return Staged(attempt, events)

    def commit(self, named: Sequence[Staged], *, key: str | None = None) -> bool:
        """Append what these attempts have staged, all of it or nothing; False if it was appended before.

        `key` replaces the writer's name if the batch is recorded under another one than its attempts.
        """
        counting = [one for one in named if one.events]
        done = transact(self._store, lambda tx: commit(tx, self._stream, key or self.writer, self._batch, counting))
        try:
            transact(self._store, lambda tx: drop_leftovers(tx, self.writer, self._batch))
        except PenstockError as error:  # the events are appended; the next commit drops what is left over
            logger.warning("could not drop leftovers of a write; the next commit does: %s", error)
        return done

    def abort(self, named: Sequence[Staged]) -> None:
        """Drop what these attempts have staged."""
        transact(self._store, lambda tx: drop(tx, [one.attempt for one in named if one.events]))

    def abort_all(self) -> None:
        """Drop what any attempt has staged for this batch; an attempt that is still staging fails."""
        transact(self._store, lambda tx: drop_leftovers(tx, self.writer, self._batch))


# --- in the caller's transaction --------------------------------------------------------------------------------------


def begin(tx: Transaction, attempt: uuid.UUID, writer: str, batch: int) -> None:
    """Record an attempt, so that its leftovers can be found."""
    tx.run("stage.begin", attempt=attempt, writer=writer, batch=batch, now=tx.now())


def stage(
    tx: Transaction, attempt: uuid.UUID, events: Sequence[NewEvent], sources: Sequence[int] | None = None
) -> None:
    """Stage events under an attempt that was not given up."""
    if not tx.rows("stage.hold", attempts=[attempt]):
        raise StagedLost("This attempt was given up: its write has ended, or it took longer than a day.")
    tx.stage(events, attempt, sources)


def commit(tx: Transaction, stream: str, writer: str, batch: int, named: Sequence[Staged]) -> bool:
    """Append what these attempts have staged; False if this batch of the writer was appended before."""
    if not take_batch(tx, stream, writer, batch, sum(one.events for one in named)):
        return False
    append(tx, named)
    return True


def take_batch(tx: Transaction, target: str, writer: str, batch: int, events: int) -> bool:
    """Record a batch of a writer; False if that was done before, `StaleBatch` if a later one was."""
    if tx.run("stage.claim_batch", stream=target, writer=writer, batch=batch, events=events, now=tx.now()):
        return True
    newest = tx.one("stage.newest_batch", stream=target, writer=writer)
    if newest is not None and newest.batch > batch:
        raise StaleBatch(f"{writer} sent batch {batch} for {target!r} after it had appended batch {newest.batch}.")
    return False


def append(tx: Transaction, named: Sequence[Staged], failed: Set[int] = frozenset()) -> None:
    """Append exactly what these attempts have staged, but for what was made of failed events, in the caller's
    transaction."""
    attempts = [one.attempt for one in named]
    tx.rows("stage.hold", attempts=attempts)
    for one in named:
        _append(tx, one, failed)
    drop(tx, attempts)


def _append(tx: Transaction, staged: Staged, failed: Set[int]) -> None:
    found = tx.one("stage.count", attempt=staged.attempt)
    if found is None or found.events != staged.events:
        there = 0 if found is None else found.events
        raise StagedLost(f"A task staged {staged.events:,} events, but {there:,} are left.")
    dropped = tx.run("stage.drop_failed", attempts=[staged.attempt], offsets=sorted(failed)) if failed else 0
    if tx.run("stage.append", attempt=staged.attempt, now=tx.now()) == staged.events - dropped:
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

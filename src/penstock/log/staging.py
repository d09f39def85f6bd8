"""Staging: events that many tasks bring, appended by one transaction once all of them are there.

A task attempt stages its events under an id of its own. The commit names the attempts that count, appends exactly their
events and notes the writer's batch in the same transaction: whatever else was staged is left over, and dropped.
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
    """One batch of one writer, on its way into a stream."""

    def __init__(self, store: Store, stream: str, writer: str, batch: int) -> None:
        self._store = store
        self._stream = stream
        self._writer = writer
        self._batch = batch

    def stage(self, chunks: Iterable[Sequence[NewEvent]]) -> Staged:
        """Put the events of one task attempt aside, a chunk in a transaction: nothing is held while a chunk is made."""
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

        `key` stands for the writer where the batch is known by another name than its attempts.
        """
        counting = [one for one in named if one.events]
        done = transact(self._store, lambda tx: commit(tx, self._stream, key or self._writer, self._batch, counting))
        try:
            transact(self._store, lambda tx: drop_leftovers(tx, self._writer, self._batch))
        except PenstockError as error:  # the events are appended; the next commit drops what is left over
            logger.warning("leftovers of a write stay for now: %s", error)
        return done

    def abort(self, named: Sequence[Staged]) -> None:
        """Drop what these attempts have staged."""
        transact(self._store, lambda tx: drop(tx, [one.attempt for one in named if one.events]))

    def abort_all(self) -> None:
        """Drop what any attempt has staged for this batch; who is still staging is refused."""
        transact(self._store, lambda tx: drop_leftovers(tx, self._writer, self._batch))


# --- in the caller's transaction --------------------------------------------------------------------------------------


def begin(tx: Transaction, attempt: uuid.UUID, writer: str, batch: int) -> None:
    """Announce an attempt, so that what it leaves behind is found."""
    tx.run("stage.begin", attempt=attempt, writer=writer, batch=batch, now=tx.now())


def stage(tx: Transaction, attempt: uuid.UUID, events: Sequence[NewEvent]) -> None:
    """Put events aside under an attempt that nobody has given up."""
    if not tx.rows("stage.hold", attempts=[attempt]):
        raise StagedLost("This attempt was given up: its write has ended, or it took longer than a day.")
    tx.stage(events, attempt)


def commit(tx: Transaction, stream: str, writer: str, batch: int, named: Sequence[Staged]) -> bool:
    """Append what these attempts have staged; False if this batch of the writer was appended before."""
    total = sum(one.events for one in named)
    if not tx.run("stage.claim_batch", stream=stream, writer=writer, batch=batch, events=total, now=tx.now()):
        newest = tx.one("stage.newest_batch", stream=stream, writer=writer)
        if newest is not None and newest.batch > batch:
            raise StaleBatch(f"{writer} brings batch {batch} for {stream!r}, and has appended batch {newest.batch}.")
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
        raise StagedLost(f"A task has staged {staged.events:,} events, and {there:,} of them are there.")
    if tx.run("stage.append", attempt=staged.attempt, now=tx.now()) == staged.events:
        return
    taken = tx.one("stage.taken", attempt=staged.attempt)
    if taken is not None:
        raise DuplicateMismatch(f"Event id {taken.event_id} is already taken by another event on {taken.stream!r}.")


def drop(tx: Transaction, attempts: Sequence[uuid.UUID]) -> None:
    """Forget what these attempts have staged."""
    if attempts:
        tx.run("stage.drop_attempts", attempts=list(attempts))
        tx.run("stage.drop_rows", attempts=list(attempts))


def drop_leftovers(tx: Transaction, writer: str, batch: int) -> int:
    """Drop what failed attempts of a finished batch have left, and everybody's leftovers of long ago."""
    found = tx.rows("stage.leftovers", writer=writer, batch=batch, now=tx.now(), kept_seconds=STAGED_SECONDS)
    drop(tx, [row.attempt for row in found])
    return len(found)

"""Staging: events that many tasks bring, appended by one transaction once all of them are there.

A task attempt stages its events under an id of its own. The commit names the attempts that count, appends exactly their
events and notes the writer's batch in the same transaction: whatever else was staged is left over, and dropped.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.core.event import NewEvent
from penstock.core.limits import STAGED_SECONDS
from penstock.errors import DuplicateMismatch, StagedLost, StaleBatch
from penstock.stores.base import Transaction


@dataclass(frozen=True, slots=True)
class Staged:
    """What one task attempt has staged."""

    attempt: uuid.UUID
    events: int


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

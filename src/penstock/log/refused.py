"""Find the events whose staged rows the database refuses: try the rows out, in a transaction that is rolled back.

Rows are tried in offset order, and those that were taken stay while the others are tried, so that two rows that are
refused only together count as one refused row: the later one.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field

from penstock.core import codec
from penstock.core.lease import Failure
from penstock.core.limits import REFUSAL_TRIES
from penstock.core.user_sql import UserSqlError
from penstock.errors import DuplicateMismatch
from penstock.log import pipelines, staging
from penstock.log.ids import uuid7
from penstock.log.staging import Staged
from penstock.log.transact import transact
from penstock.stores.base import Store, Transaction


@dataclass(slots=True)
class Refused:
    """The events whose rows were refused, and those that were not tried, because there were too many."""

    failed: dict[int, Failure] = field(default_factory=dict)
    untried: set[int] = field(default_factory=set)


class _Undone(Exception):
    """Raised to roll a trial back."""


def refusal(message: object) -> Failure:
    """Make the failure of an event whose rows the database refuses."""
    return Failure("effect_failed", codec.error_text(f"settle_failed: {message}"))


def try_rows(store: Store, statement: str, named: Sequence[Staged]) -> str | None:
    """Move rows with the sink's statement and undo it; return the database's error, if any."""
    return _tried(store, lambda tx: pipelines.run_statement(tx, statement, [one.attempt for one in named]))


def try_events(store: Store, named: Sequence[Staged]) -> str | None:
    """Append staged events and undo it; return why that is impossible, if it is."""
    return _tried(store, lambda tx: staging.append(tx, named))


def _tried(store: Store, work: Callable[[Transaction], None]) -> str | None:
    def trial(tx: Transaction) -> None:
        work(tx)
        raise _Undone

    try:
        transact(store, trial)
    except _Undone:
        return None
    except (UserSqlError, DuplicateMismatch) as error:
        return error.message if isinstance(error, DuplicateMismatch) else str(error).strip()
    raise AssertionError("unreachable")


def refused_events(store: Store, named: Sequence[Staged], failed: Set[int]) -> Refused | None:
    """Find the events of which events were made whose ids are taken by others; None if one is unknown."""
    found = Refused()

    def trial(tx: Transaction) -> None:
        attempts = [one.attempt for one in named]
        if failed:
            tx.run("stage.drop_failed", attempts=attempts, offsets=sorted(failed))
        for one in named:
            tx.run("stage.append", attempt=one.attempt, now=tx.now())
        for row in tx.rows("stage.taken_by", attempts=attempts):
            text = f"Event id {row.event_id} is already taken by another event on {row.stream!r}."
            found.failed[row.source_offset] = Failure(DuplicateMismatch.code, codec.error_text(text))
        raise _Undone

    with suppress(_Undone):
        transact(store, trial)
    return None if None in found.failed or not found.failed else found


def refused_rows(store: Store, statement: str, named: Sequence[Staged], failed: Set[int]) -> Refused | None:
    """Find the events whose rows the sink's statement cannot move; None if there is a row that names no event."""
    found: list[Refused | None] = []

    def trial(tx: Transaction) -> None:
        found[:] = [_search(tx, statement, named, failed)]
        raise _Undone

    with suppress(_Undone):
        transact(store, trial)
    return found[0]


def _search(tx: Transaction, statement: str, named: Sequence[Staged], failed: Set[int]) -> Refused | None:
    attempts = [one.attempt for one in named]
    if failed:
        tx.run("pipeline.drop_failed", attempts=attempts, offsets=sorted(failed))
    offsets = [row.event_offset for row in tx.rows("pipeline.events", attempts=attempts)]
    if None in offsets:
        return None
    found = Refused()
    waiting = [(attempts, offsets)]
    for _ in range(REFUSAL_TRIES):
        if not waiting:
            break
        attempts, offsets = waiting.pop()
        message = _try(tx, statement, attempts)
        if message is None:
            continue
        if len(offsets) == 1:
            found.failed[offsets[0]] = refusal(message)
            continue
        halves = offsets[: len(offsets) // 2], offsets[len(offsets) // 2 :]
        for half in reversed(halves):  # the first is tried first
            part = uuid7()
            tx.run("pipeline.copy_part", part=part, attempts=attempts, low=half[0], high=half[-1])
            waiting.append(([part], half))
    found.untried = {offset for _, offsets in waiting for offset in offsets}
    return found


def _try(tx: Transaction, statement: str, attempts: Sequence[uuid.UUID]) -> str | None:
    try:
        with tx.savepoint():
            pipelines.run_statement(tx, statement, attempts)
    except UserSqlError as error:
        return str(error).strip()
    return None

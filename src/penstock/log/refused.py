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
from penstock.core.target import StagingTable
from penstock.core.user_sql import UserSqlError
from penstock.errors import DuplicateMismatch
from penstock.log import pipelines, staging
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


def try_rows(store: Store, table: StagingTable, named: Sequence[Staged]) -> str | None:
    """Move rows and undo it; return the database's error, if any."""
    return _tried(store, lambda tx: pipelines.run_statement(tx, table.move, [one.attempt for one in named]))


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


def refused_rows(store: Store, table: StagingTable, named: Sequence[Staged], failed: Set[int]) -> Refused | None:
    """Find the events whose rows cannot be moved, all of which were refused together.

    None if there is a row that names no event.
    """
    found: list[Refused | None] = []

    def trial(tx: Transaction) -> None:
        found[:] = [_search(tx, table, named, failed)]
        raise _Undone

    with suppress(_Undone):
        transact(store, trial)
    return found[0]


@dataclass(slots=True)
class _Part:
    """Events in offset order whose rows are tried together."""

    offsets: Sequence[int]
    refused: bool = False  # known without a trial
    decides: bool = False  # its other half is refused if this one is taken


def _search(tx: Transaction, table: StagingTable, named: Sequence[Staged], failed: Set[int]) -> Refused | None:
    attempts = [one.attempt for one in named]
    if failed:
        tx.run("pipeline.drop_failed", attempts=attempts, offsets=sorted(failed))
    offsets = [row.event_offset for row in tx.rows("pipeline.events", attempts=attempts)]
    if None in offsets:
        return None
    found = Refused()
    waiting = [_Part(offsets, refused=True)] if offsets else []
    for _ in range(REFUSAL_TRIES):
        if not waiting:
            break
        part = waiting.pop()
        first, last, alone = part.offsets[0], part.offsets[-1], len(part.offsets) == 1
        message = _try(tx, table, attempts, first, last) if alone or not part.refused else ""
        if message is None:
            if part.decides:
                waiting[-1].refused = True
        elif alone:
            found.failed[first] = refusal(message)
        else:
            half = len(part.offsets) // 2
            waiting += [_Part(part.offsets[half:]), _Part(part.offsets[:half], decides=True)]
    found.untried = {offset for part in waiting for offset in part.offsets}
    return found


def _try(tx: Transaction, table: StagingTable, attempts: Sequence[uuid.UUID], first: int, last: int) -> str | None:
    """Move the rows of some events; they stay, for those that are tried next, unless they are refused."""
    try:
        with tx.savepoint():
            pipelines.run_statement(tx, table.move_part, attempts, first, last)
    except UserSqlError as error:
        return str(error).strip()
    return None

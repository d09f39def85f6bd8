"""Operations as stored, for those who look."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import orjson

from penstock.core import limits
from penstock.core.operation import ACTIVE, STATES, Kind, OperationState, Phase
from penstock.errors import InvalidInput, UnknownOperation
from penstock.log import checks
from penstock.log.transact import look
from penstock.stores.base import Store, Transaction
from penstock.stores.rows import OperationRow

_PAGE: Final = 1_000


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an operation is: of `planned` deliveries `moved`, and `returned` of those are DEAD again."""

    phase: Phase
    planned: int
    moved: int
    returned: int
    canaries: int  # that were moved …
    canaries_ended: int  # … and have an outcome

    @property
    def fraction(self) -> float:
        """The part that is moved, from 0 to 1."""
        return min(1.0, self.moved / self.planned) if self.planned else 1.0


@dataclass(frozen=True, slots=True)
class OperationInfo:
    """An operation: what it moves, how far it is, and why it waits or stopped."""

    id: int
    kind: Kind
    stream: str
    group: str
    state: OperationState
    phase: Phase
    filter: dict[str, Any]
    cutoff: datetime | int
    canary: int | None
    rate_per_second: float | None
    stop_on_return: int | None
    reason: str | None
    by: str
    planned: int
    moved: int
    returned: int
    canaries_moved: int
    canaries_ended: int
    waits_for: str | None  # while it runs
    stop_reason: str | None  # once it has ended before its time
    held_by: str | None  # the process that runs it now
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    next_at: datetime | None = field(default=None, compare=False)  # when it is looked at again

    @property
    def ended(self) -> bool:
        """Whether nothing more happens."""
        return self.state not in ACTIVE

    @property
    def progress(self) -> Progress:
        """How far it is."""
        return Progress(self.phase, self.planned, self.moved, self.returned, self.canaries_moved, self.canaries_ended)


@dataclass(frozen=True, slots=True)
class Returned:
    """A delivery that an operation has moved, and that is DEAD again."""

    event_id: uuid.UUID
    offset: int
    event_type: str
    error_code: str | None
    last_error: str | None
    dead_at: datetime


def came_back(store: Store, number: int, limit: int) -> list[Returned]:
    """Return some of what is DEAD again."""
    which = {"id": checks.count(number, "an operation"), "limit": checks.count(limit, "limit")}
    return [Returned(*row) for row in look(store, lambda tx: tx.rows("operation.back", **which))]


def info_of(row: OperationRow, returned: int | None = None) -> OperationInfo:
    """Make the info of a row; `returned` is a newer count than the stored one."""
    cutoff = row.cutoff_at if row.cutoff_at is not None else row.cutoff_offset
    assert cutoff is not None
    state = OperationState(row.state)
    early = state in (OperationState.STOPPED, OperationState.FAILED, OperationState.ABORTED)
    return OperationInfo(
        row.id,
        Kind(row.kind),
        row.stream,
        row.group_name,
        state,
        Phase(row.phase),
        orjson.loads(row.filter),
        cutoff,
        row.canary,
        row.rate_per_second,
        row.stop_on_return,
        row.reason,
        row.by,
        row.planned,
        row.moved,
        max(row.returned, returned or 0),
        len(orjson.loads(row.canaries)),
        row.canaries_ended,
        row.note if state in ACTIVE else None,
        row.note if early else None,
        row.held_by if row.expires_at is not None and state in ACTIVE else None,
        row.created_at,
        row.started_at,
        row.ended_at,
        row.next_at if state is OperationState.RUNNING else None,
    )


def found(tx: Transaction, number: int) -> OperationRow:
    """Return the row of an operation; `UnknownOperation` if there is none."""
    row: OperationRow | None = tx.one("operation.find", id=number)
    if row is None:
        raise UnknownOperation(f"There is no operation {number}.")
    return row


def count_returned(tx: Transaction, row: OperationRow) -> int:
    """Count what the operation has moved and is DEAD again with the error it had; for a replay, with any."""
    if row.kind not in (Kind.REDRIVE, Kind.REPLAY) or not row.moved:
        return 0
    most = max(limits.RETURNED_COUNT, row.stop_on_return or 0)
    any_error = row.kind == Kind.REPLAY
    back = tx.one("operation.returned", id=row.id, any_error=any_error, since=row.created_at, most=most)
    return 0 if back is None else int(back.deliveries)


def info(store: Store, number: int) -> OperationInfo:
    """Return an operation as it is now, with the returns up to now."""
    checks.count(number, "an operation")

    def work(tx: Transaction) -> OperationInfo:
        row = found(tx, number)
        return info_of(row, count_returned(tx, row))

    return look(store, work)


def listed(
    store: Store, *, state: str | None, stream: str | None, group: str | None, before: int | None, limit: int
) -> list[OperationInfo]:
    """Return operations, the newest first; pass the last one's id as `before` for the next page."""
    if state is not None and state not in STATES:
        raise InvalidInput(f"state must be one of {', '.join(STATES)}, not {state!r}.")
    checks.count(limit, "limit")
    if before is not None:
        checks.count(before, "before")
    which = {"state": state, "stream": stream, "group_name": group, "before": before, "limit": min(limit, _PAGE)}
    return look(store, lambda tx: [info_of(row) for row in tx.rows("operation.page", **which)])

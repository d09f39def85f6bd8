"""One step of an operation: a transaction that moves deliveries and writes how far the operation is, or neither."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import Enum, auto

import orjson

from penstock.core import limits
from penstock.core.allowance import allowance
from penstock.core.group import Group
from penstock.core.operation import Kind, OperationState, Phase
from penstock.errors import Pruned, UnknownGroup
from penstock.log import groups, rewind
from penstock.log.operations import batches
from penstock.log.operations.draft import Draft
from penstock.log.operations.record import count_returned, found
from penstock.log.operations.start import note
from penstock.stores.base import Transaction
from penstock.stores.rows import OperationRow


class Stepped(Enum):
    """What a runner does next."""

    MORE = auto()  # the next step, at once
    LATER = auto()  # nothing, until the operation's next time
    ENDED = auto()  # nothing: it has ended, is paused, or somebody else runs it


def step(tx: Transaction, number: int, token: int, *, most: int | None = None) -> Stepped:
    """Do the next step of an operation, for the runner with this token; any other one changes nothing."""
    names = found(tx, number)
    group: Group | None
    try:
        group = groups.locked(tx, names.stream, names.group_name)  # before the operation, as everywhere
    except UnknownGroup:
        group = None
    row: OperationRow | None = tx.one("operation.lock", id=number)
    if row is None or row.token != token or row.state != OperationState.RUNNING:
        return Stepped.ENDED
    now = tx.now()
    draft = Draft.of(row)
    draft.started_at = row.started_at or now
    draft.expires_at = now + timedelta(seconds=limits.OPERATION_LEASE_SECONDS)
    draft.note = None
    if group is None or group.group_id != row.group_id:
        result = _end(tx, row, draft, OperationState.FAILED, now, f"The group {row.group_name!r} was deleted.")
    else:
        result = _Step(tx, row, group, draft, now, most or limits.OPERATION_BATCH).run()
    draft.write(tx, number)
    if draft.moved > row.moved:
        tx.wake()
    return result


def _end(
    tx: Transaction, row: OperationRow, draft: Draft, state: OperationState, now: datetime, why: str | None = None
) -> Stepped:
    """End an operation, and say so in the audit."""
    draft.state, draft.note, draft.ended_at, draft.expires_at = state, why, now, None
    note(tx, row.by, state, row, draft.moved, why)
    return Stepped.ENDED


class _Step:
    """A step of a locked operation on its locked group; what changes goes to the draft."""

    def __init__(
        self, tx: Transaction, row: OperationRow, group: Group, draft: Draft, now: datetime, most: int
    ) -> None:
        self.tx, self.row, self.group, self.draft, self.now, self.most = tx, row, group, draft, now, most

    def run(self) -> Stepped:
        if self.row.kind == Kind.REWIND:
            return self._rewind()
        if self._stopped():
            return Stepped.ENDED
        careful = self.row.canary or self.row.rate_per_second or self.row.stop_on_return
        if self.group.paused and careful and self.row.kind != Kind.PURGE:
            why = f": {self.group.pause_reason}" if self.group.pause_reason else ""
            return self._wait(f"The group is paused{why}.")
        if self.row.phase == Phase.CANARY:
            return self._move_canaries()
        if self.row.phase == Phase.WAITING and self._canaries_are_out():
            return self._wait(f"{self._left} of {len(self.draft.canaries)} canaries have no outcome yet.")
        return self._move()

    def _stopped(self) -> bool:
        """End the operation if too many came back."""
        limit = self.row.stop_on_return
        if limit is None or not self.row.moved:
            return False
        self.draft.returned = max(self.draft.returned, count_returned(self.tx, self.row))
        if self.draft.returned < limit:
            return False
        how = "failed" if self.row.kind == Kind.REPLAY else "came back with the error they had"
        why = f"{self.draft.returned:,} of {self.draft.moved:,} {how}."
        _end(self.tx, self.row, self.draft, OperationState.STOPPED, self.now, why)
        return True

    def _wait(self, why: str, until: datetime | None = None) -> Stepped:
        later = self.now + timedelta(seconds=limits.OPERATION_LOOK_SECONDS)
        self.draft.note, self.draft.next_at, self.draft.expires_at = why, until or later, None
        return Stepped.LATER

    # --- canaries --------------------------------------------------------------------------------------------------

    def _move_canaries(self) -> Stepped:
        wanted = (self.row.canary or 0) - len(self.draft.canaries)
        done = batches.canaries(self.tx, self.row, self.group, wanted, self.now)
        self.draft.canaries += done.offsets
        self.draft.moved_upto = done.upto
        self.draft.moved += done.moved
        if not done.last and len(done.offsets) < wanted:
            return Stepped.MORE  # a replay looks at a part of the log at a time
        self.draft.phase = Phase.WAITING
        return self._wait(f"{len(self.draft.canaries)} canaries were moved.") if self.draft.canaries else Stepped.MORE

    def _canaries_are_out(self) -> bool:
        """Whether canaries are on their way. One that waits behind a key that has halted since is not."""
        offsets = self.draft.canaries
        halts = self.group.ordered and self.group.halts
        row = self.tx.one("operation.canaries", group_id=self.group.group_id, offsets=offsets, halts=halts)
        self._left = 0 if row is None else int(row.waiting) - int(row.held)
        self.draft.canaries_ended = len(offsets) - self._left
        if self._left:
            return True
        self.draft.phase = Phase.MOVING
        return False

    # --- the rest --------------------------------------------------------------------------------------------------

    def _move(self) -> Stepped:
        most = self.most
        if self.row.rate_per_second is not None:
            allowed = allowance(self.row.rate_per_second, self.row.rate_at or self.now, self.now, most)
            if not allowed.many:
                self.draft.rate_at = allowed.rate_at
                return self._wait("The rate is used up.", allowed.again)
            most = allowed.many
        done = batches.batch(self.tx, self.row, self.group, self.draft.moved_upto, most, self.now)
        self.draft.moved += done.moved
        self.draft.moved_upto = done.upto
        if done.last:
            self.draft.returned = max(self.draft.returned, count_returned(self.tx, self.row))
            return _end(self.tx, self.row, self.draft, OperationState.DONE, self.now)
        self.draft.next_at = self.now
        if self.row.rate_per_second is None:
            return Stepped.MORE
        spent = allowance(self.row.rate_per_second, self.row.rate_at or self.now, self.now, max(done.moved, 0))
        self.draft.rate_at = spent.rate_at
        return self._wait("The rate is used up.", spent.again) if done.moved else Stepped.MORE

    def _rewind(self) -> Stepped:
        given = orjson.loads(self.row.filter)
        try:
            target = rewind.aim(self.tx, self.group, given["to"])
        except Pruned as error:
            return _end(self.tx, self.row, self.draft, OperationState.FAILED, self.now, error.message)
        reset = given["state"] == "reset"
        count = rewind.apply(self.tx, self.group, target, reset_state=reset, by=self.row.by)
        self.draft.moved, self.draft.moved_upto = count, target
        return _end(self.tx, self.row, self.draft, OperationState.DONE, self.now)

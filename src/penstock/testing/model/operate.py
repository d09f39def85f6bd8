"""The model's rules for operators' actions; the complete model."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from penstock.core.delivery import Reason, State
from penstock.core.lease import LeaseOutcome
from penstock.core.lifecycle import require
from penstock.errors import IllegalTransition, InFlight
from penstock.testing.model.claim import Claiming
from penstock.testing.model.state import ModelReturned, ModelRow


@dataclass
class GroupModel(Claiming):
    """The rules of claim, settle, reap, release, rewind and lanes, for one group."""

    def rewind(self, target: int) -> None:
        """End all leases, drop the rows above the target, and put everything above it back."""
        for lease in self.open_leases():
            self._give_back(lease, LeaseOutcome.REWOUND)
        self.rewinds += 1
        self.rows = {offset: row for offset, row in self.rows.items() if offset <= target}
        self.done = {offset: attempts for offset, attempts in self.done.items() if offset <= target}
        kept = [
            ModelReturned(p.lane, p.low, min(p.high, target), p.attempts, p.due, p.replay)
            for p in self.returned
            if p.low < target
        ]
        again = [
            ModelReturned(lane, target, self.cursor(lane), 0, self.now, self.rewinds)
            for lane in range(self.lanes)
            if self.cursor(lane) > target
        ]
        self.returned = kept + again

    def double_lanes(self) -> None:
        """Split each lane in two, which inherit its cursor and its returned ranges."""
        if self.open_leases():
            raise InFlight
        cursors = {lane: self.cursor(lane) for lane in range(self.lanes)}
        self.returned = [
            ModelReturned(child, p.low, p.high, p.attempts, p.due, p.replay)
            for p in self.returned
            for child in (2 * p.lane, 2 * p.lane + 1)
        ]
        self.cursors = {2 * lane + half: cursor for lane, cursor in cursors.items() for half in (0, 1)}
        self.lanes *= 2
        self.last_lease = {}

    def restart(self, offset: int, reason: Reason) -> None:
        """Redrive (DEAD) or replay (PUBLISHED)."""
        wanted = State.DEAD if reason is Reason.REDRIVEN else State.PUBLISHED
        found = self.delivery(self.events[offset - 1])
        if found is None or found.state is not wanted:
            raise IllegalTransition
        require(found.state, State.PENDING)
        row = self.rows.get(offset)
        replays = (row.replays if row else 0) + (reason is Reason.REPLAYED)
        self.done.pop(offset, None)
        date = self.events[offset - 1].available_at if reason is Reason.REDRIVEN else None
        due = self.now if date is None else max(date, self.now)  # a dead letter may be older than its event's date
        self.rows[offset] = ModelRow(State.PENDING, 0, 0, due, reason, replays)

    def kill(self, offset: int) -> None:
        """PENDING → CLAIMED → DEAD."""
        row = self._pending_row(offset)
        row.state, row.reason, row.attempts = State.DEAD, Reason.KILLED, row.attempts + 1

    def reschedule(self, offset: int, available_at: datetime) -> None:
        row = self._pending_row(offset)
        row.available_at, row.reason = available_at, Reason.RESCHEDULED

    def _pending_row(self, offset: int) -> ModelRow:
        found = self.delivery(self.events[offset - 1])
        if found is None or found.state in (State.PUBLISHED, State.DEAD):
            raise IllegalTransition
        if found.state is State.CLAIMED:
            raise InFlight
        if offset not in self.rows:
            self.rows[offset] = ModelRow(State.PENDING, found.attempts, 0, self.now, None)
        return self.rows[offset]

    def skip(self, key: str) -> None:
        """Let a halted key continue."""
        for offset, row in self.rows.items():
            if row.state is State.DEAD and self.events[offset - 1].key == key:
                row.reason = Reason.SKIPPED

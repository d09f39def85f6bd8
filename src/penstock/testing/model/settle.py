"""The model's rules of settle, release, extend and reap."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from penstock.core.delivery import Reason, State
from penstock.core.lease import LeaseOutcome, alone, cut, part_after, split_released, suspect_parts
from penstock.core.lifecycle import next_attempt
from penstock.core.ordering import held_back
from penstock.errors import LeaseLost
from penstock.testing.model.state import GroupState, ModelLease, ModelReturned, ModelRow


@dataclass
class Settling(GroupState):
    """The rules for the members of a lease that ends."""

    def holder(self, lease_id: int) -> ModelLease:
        """Return the open lease; raise `LeaseLost` if it has ended or expired."""
        lease = self.leases[lease_id]
        if lease.outcome is not None or lease.expires_at <= self.now:
            raise LeaseLost
        return lease

    def settle(
        self,
        lease_id: int,
        failed: Iterable[int] = (),
        dead: Iterable[int] = (),
        released: Iterable[int] = (),
        due_after_seconds: float = 0.0,
        died: Iterable[int] = (),
        suspects: Iterable[int] = (),
        effects: Iterable[int] = (),
    ) -> tuple[int, int, int, int]:
        """Settle a lease; returns (published, failed, dead, released).

        The released end comes back after the delay. Each event in `died` killed its process; of the `suspects` one
        did, unknown which. Events in `effects` have effects if, and only if, they succeed.
        """
        lease = self.holder(lease_id)
        failing, burying, releasing = {*failed, *died}, set(dead), set(released)
        parts = suspect_parts(lease.id, [*suspects]) | {offset: alone(offset) for offset in died}
        upto, beyond = max(lease.members), list[int]()
        if lease.is_range:
            rows = failing | burying | parts.keys()
            upto, singles = split_released(lease.members, releasing, lease.low, lease.high, rows)
            releasing = set(singles)
            beyond = [offset for offset in lease.members if offset > upto and offset in rows]
        finished = [offset for offset in lease.members if offset <= upto]
        tail = len(lease.members) - len(finished) - len(beyond)
        blocked: set[int] = set()
        if self.ordered:
            members = [(offset, self.events[offset - 1].key) for offset in finished]
            stopped = failing | releasing | parts.keys() | (burying if self.on_dead == "halt" else set())
            # A failure that exhausts the budget does not stop its key either, unless the group halts.
            stopped -= {o for o in failing if self._next_attempt(o) is None and self.on_dead != "halt"}
            blocked = set(held_back(members, stopped, failing | burying | parts.keys()))
        counts = [0, 0, 0, 0]
        for offset in finished + beyond:
            became = self._settle_one(lease, offset, failing, burying, releasing, blocked, parts)
            counts[became] += 1
            if became == 0 and offset in effects:
                self.effects.append(offset)
        if tail:
            due = self.now + timedelta(seconds=due_after_seconds)
            self.returned.append(ModelReturned(lease.lane, upto, lease.high, lease.attempts, due, lease.replay))
        lease.outcome = LeaseOutcome.SETTLED
        return counts[0], counts[1], counts[2], counts[3] + tail

    def _next_attempt(self, offset: int) -> datetime | None:
        failures = self.rows[offset].failures + 1 if offset in self.rows else 1
        created_at = self.events[offset - 1].created_at
        return next_attempt(self.retry, failures, created_at=created_at, now=self.now, u=0.0)

    def _settle_one(
        self,
        lease: ModelLease,
        offset: int,
        failing: set[int],
        burying: set[int],
        releasing: set[int],
        blocked: set[int],
        parts: Mapping[int, int],
    ) -> int:
        row = self.rows.get(offset)
        if offset in blocked or offset in releasing:
            reason = Reason.BLOCKED if offset in blocked else Reason.RELEASED
            self._put(lease, offset, State.PENDING, 0, self.now, reason)
            return 3
        if offset in burying or offset in failing:
            return self._fail(lease, offset, burying=offset in burying, part=parts.get(offset))
        if offset in parts:
            self._put(lease, offset, State.PENDING, 0, self.now, Reason.SUSPECT, parts[offset])
            return 3
        if row is not None:
            row.state, row.lease, row.claimed_by, row.reason = State.PUBLISHED, None, None, None
            row.part = None
        else:
            self.done[offset] = lease.attempts
        return 0

    def _fail(self, lease: ModelLease, offset: int, *, burying: bool, part: int | None = None) -> int:
        due = None if burying else self._next_attempt(offset)
        if due is None:
            self._put(lease, offset, State.DEAD, 1, self.now, None)
            return 2
        self._put(lease, offset, State.PENDING, 1, due, Reason.RETRY, part)
        return 1

    def _put(
        self,
        lease: ModelLease,
        offset: int,
        state: State,
        failures: int,
        available_at: datetime,
        reason: str | None,
        part: int | None = None,
    ) -> None:
        row = self.rows.get(offset)
        if row is None:
            row = self.rows[offset] = ModelRow(State.CLAIMED, lease.attempts, 0, self.now, None, lease.replay, lease.id)
        row.state, row.lease, row.claimed_by = state, None, None
        row.failures += failures
        row.available_at, row.reason = available_at, reason
        row.part = None if state is State.DEAD else part_after(row.part, part, failures=failures)

    def release(self, lease_id: int) -> None:
        """Give everything back, due at once and without a failure."""
        self._give_back(self.holder(lease_id), LeaseOutcome.RELEASED)

    def _give_back(self, lease: ModelLease, outcome: LeaseOutcome) -> None:
        if lease.is_range:
            self.returned.append(
                ModelReturned(lease.lane, lease.low, lease.high, lease.attempts, self.now, lease.replay)
            )
        else:
            for offset in lease.members:
                self._put(lease, offset, State.PENDING, 0, self.now, Reason.RELEASED)
        lease.outcome = outcome

    def extend(self, lease_id: int) -> None:
        self.holder(lease_id).expires_at = self.now + timedelta(seconds=self.lease_seconds)

    # --- reap ----------------------------------------------------------------------------------------------------

    def reap(self) -> int:
        """Take back expired leases: ranges in pieces, lists in parts, a single event as a failure."""
        expired = [lease for lease in self.open_leases() if lease.expires_at <= self.now]
        for lease in expired:
            if len(lease.members) == 1:
                self._fail(lease, lease.members[0], burying=False, part=alone(lease.members[0]))
            elif lease.is_range:
                for low, high, _ in cut(lease.members, lease.low, lease.high):
                    self.returned.append(ModelReturned(lease.lane, low, high, lease.attempts, self.now, lease.replay))
            else:
                for offset, part in suspect_parts(lease.id, lease.members).items():
                    self._put(lease, offset, State.PENDING, 0, self.now, Reason.SUSPECT, part)
            lease.outcome = LeaseOutcome.EXPIRED
        return len(expired)

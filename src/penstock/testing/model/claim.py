"""The model's rules of claim."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from penstock.core import limits
from penstock.core.delivery import Reason, State
from penstock.core.lease import LeaseOutcome
from penstock.testing.model.settle import Settling
from penstock.testing.model.state import ModelEvent, ModelLease, ModelReturned, ModelRow


@dataclass
class Claiming(Settling):
    """One lease of one kind at a time."""

    def claim(self, limit: int, claimed_by: str) -> ModelLease | None:
        """Claim one lease, or return None."""
        if limit == 0:
            return None
        self.reap()
        if self.paused:
            return None
        lease = self._claim_some_lane(limit, claimed_by)
        while lease is not None and not lease.members:  # the range held no matching event
            lease = self._claim_some_lane(limit, claimed_by)
        return lease

    def _claim_some_lane(self, limit: int, claimed_by: str) -> ModelLease | None:
        busy = {lease.lane for lease in self.open_leases()} if self.exclusive else set()
        free = [lane for lane in range(self.lanes) if lane not in busy]
        for lane in sorted(free, key=lambda number: (self.last_lease.get(number, 0), number)):
            lease = self._claim_lane(lane, limit, claimed_by)
            if lease is not None:
                return lease
        return None

    def _claim_lane(self, lane: int, limit: int, claimed_by: str) -> ModelLease | None:
        pieces = sorted((p for p in self.returned if p.lane == lane), key=lambda p: p.low)
        due = [p for p in pieces if p.due <= self.now]
        lowest = pieces[0] if pieces else None
        if due and (not self.ordered or due[0] is lowest):
            return self._claim_range(lane, due[0], limit, claimed_by)
        ceiling = None
        if self.ordered:
            ceiling = min(self.cursor(lane), lowest.low) if lowest else self.cursor(lane)
        last = self.leases.get(self.last_lease.get(lane, 0))
        due_rows = self._due_rows(lane, ceiling, limit)
        if due_rows and last is not None and last.is_range and (self.ordered or self._ripe(due_rows, limit)):
            return self._claim_rows(lane, due_rows, claimed_by)
        if not (self.ordered and lowest):
            lease = self._claim_range(lane, None, limit, claimed_by)
            if lease is not None:
                return lease
        return self._claim_rows(lane, due_rows, claimed_by) if due_rows else None

    def _ripe(self, due: list[int], limit: int) -> bool:
        """Return whether rows come before the next range: they fill a lease, or have waited long enough."""
        waited = self.now - self.rows[due[0]].available_at
        return len(due) >= min(limit, limits.ROWS_PER_LEASE) or waited >= timedelta(seconds=limits.ROWS_WAIT_SECONDS)

    def _claim_range(self, lane: int, piece: ModelReturned | None, limit: int, claimed_by: str) -> ModelLease | None:
        low = piece.low if piece else self.cursor(lane)
        end = piece.high if piece else (self.events[-1].offset if self.events else 0)
        attempts, replay = (piece.attempts, piece.replay) if piece else (0, 0)
        closed = {
            self.events[offset - 1].key: offset
            for offset, row in sorted(self.rows.items(), reverse=True)
            if not self.resolved(row) and self.lane(self.events[offset - 1]) == lane
        }
        members: list[int] = []
        stepped_over = False
        high = end
        for event in self.wanted(lane, low, end):
            if event.offset in self.rows:
                stepped_over = True
                continue
            reason = self._held(event, closed)
            if reason is None:
                members.append(event.offset)
                if len(members) == limit:
                    high = event.offset
                    break
                continue
            stepped_over = True
            self.rows[event.offset] = ModelRow(
                State.PENDING,
                attempts,
                0,
                max(self.now, event.available_at or self.now),
                reason,
                replay,
            )
            if self.ordered and event.key is not None:
                closed[event.key] = min(event.offset, closed.get(event.key, event.offset))
        if piece:
            self.returned.remove(piece)
            if high < piece.high:
                self.returned.append(ModelReturned(lane, high, piece.high, piece.attempts, piece.due, piece.replay))
        if not members and not stepped_over and not piece:
            return None
        if not piece:
            self.cursors[lane] = high
        lease = self._open(lane, True, low, high, members, attempts + 1, replay, claimed_by)
        if not members:
            lease.outcome = LeaseOutcome.SETTLED
        return lease

    def _held(self, event: ModelEvent, closed: Mapping[str | None, int]) -> Reason | None:
        if event.available_at is not None and event.available_at > self.now:
            return Reason.DELAYED
        if self.ordered and event.key is not None and closed.get(event.key, event.offset) < event.offset:
            return Reason.BLOCKED
        return None

    def _due_rows(self, lane: int, ceiling: int | None, limit: int) -> list[int]:
        mine = {
            offset: row
            for offset, row in sorted(self.rows.items())
            if self.lane(self.events[offset - 1]) == lane and (ceiling is None or offset <= ceiling)
        }
        if self.ordered:
            candidates = self._ordered_candidates(mine)
        else:
            due = [
                (row.available_at, offset)
                for offset, row in mine.items()
                if row.state is State.PENDING and row.available_at <= self.now
            ]
            candidates = [offset for _, offset in sorted(due)]
        return candidates[: min(limit, limits.ROWS_PER_LEASE)]

    def _claim_rows(self, lane: int, due: list[int], claimed_by: str) -> ModelLease:
        taken = sorted(offset for offset in due if self.rows[offset].part == self.rows[due[0]].part)
        lease = self._open(lane, False, 0, 0, taken, 0, 0, claimed_by)
        for offset in taken:
            row = self.rows[offset]
            row.state, row.lease, row.claimed_by = State.CLAIMED, lease.id, claimed_by
            row.attempts += 1
        return lease

    def _ordered_candidates(self, mine: Mapping[int, ModelRow]) -> list[int]:
        """Return the rows of each key from its lowest unresolved one up to the first not due or of another part."""
        stopped: set[str] = set()
        parts: dict[str, int | None] = {}
        candidates: list[int] = []
        for offset, row in mine.items():
            if self.resolved(row):
                continue
            key = self.events[offset - 1].key or f"\0{offset}"
            due = row.state is State.PENDING and row.available_at <= self.now
            if due and key not in stopped and parts.setdefault(key, row.part) == row.part:
                candidates.append(offset)
            else:
                stopped.add(key)
        return candidates

    def _open(
        self,
        lane: int,
        is_range: bool,
        low: int,
        high: int,
        members: list[int],
        attempts: int,
        replay: int,
        claimed_by: str,
    ) -> ModelLease:
        lease = ModelLease(
            self._next_lease,
            lane,
            is_range,
            low,
            high,
            members,
            attempts,
            replay,
            claimed_by,
            self.now + timedelta(seconds=self.lease_seconds),
        )
        self._next_lease += 1
        self.leases[lease.id] = lease
        self.last_lease[lane] = lease.id
        return lease

"""The executable model: one group over one stream, event by event, with no index, range trick or SQL.

The stores are checked against it command by command. It is slow and plain on purpose: where a store keeps a range,
the model keeps every event, and asks of each where it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from penstock.core import limits
from penstock.core.binding import matches
from penstock.core.delivery import Reason, State
from penstock.core.lanes import bucket_of, lane_of
from penstock.core.lease import Outcome, alone, cut, part_after, split_released, suspect_parts
from penstock.core.lifecycle import next_attempt, require
from penstock.core.ordering import held_back
from penstock.core.retry import Retry
from penstock.errors import IllegalTransition, InFlight, LeaseLost

SUSPECT = Reason.SUSPECT


@dataclass(slots=True)
class ModelEvent:
    offset: int
    key: str | None
    event_type: str
    available_at: datetime | None
    created_at: datetime
    stored_offset: int | None = None  # where a store put it; decides the lane of an event without a key


@dataclass(slots=True)
class ModelRow:
    """An exception: a delivery that left its range."""

    state: State
    attempts: int
    failures: int
    available_at: datetime
    reason: str | None
    replays: int = 0
    lease: int | None = None
    claimed_by: str | None = None
    part: int | None = None  # of a lost lease


@dataclass(slots=True)
class ModelReturned:
    lane: int
    low: int
    high: int
    attempts: int
    due: datetime
    replay: int = 0


@dataclass(slots=True)
class ModelLease:
    id: int
    lane: int
    is_range: bool
    low: int
    high: int
    members: list[int]
    attempts: int
    replay: int
    claimed_by: str
    expires_at: datetime
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True)
class ModelDelivery:
    """What the view `delivery` must show for one event."""

    state: State
    attempts: int
    failures: int


@dataclass
class GroupModel:
    """The rules of claim, settle, reap, release, rewind and lanes, for one group."""

    retry: Retry
    now: datetime
    lease_seconds: float = limits.LEASE_SECONDS
    ordered: bool = False
    exclusive: bool = False
    lanes: int = 1
    on_dead: str = "continue"
    types: Sequence[str] | None = None
    start: int = 0
    events: list[ModelEvent] = field(default_factory=list)
    rows: dict[int, ModelRow] = field(default_factory=dict)
    returned: list[ModelReturned] = field(default_factory=list)
    leases: dict[int, ModelLease] = field(default_factory=dict)
    done: dict[int, int] = field(default_factory=dict)  # published as part of a range: offset -> attempts
    cursors: dict[int, int] = field(default_factory=dict)
    last_lease: dict[int, int] = field(default_factory=dict)
    effects: list[int] = field(default_factory=list)  # of which events effects happened, in this order
    rewinds: int = 0
    paused: bool = False
    _next_lease: int = 1

    # --- looking -------------------------------------------------------------------------------------------------

    def cursor(self, lane: int) -> int:
        return self.cursors.get(lane, self.start)

    def lane(self, event: ModelEvent) -> int:
        return lane_of(bucket_of(event.key, event.stored_offset or event.offset), self.lanes)

    def wanted(self, lane: int, low: int, high: int) -> list[ModelEvent]:
        return [
            event
            for event in self.events
            if low < event.offset <= high
            and self.lane(event) == lane
            and matches(self.types, None, event.event_type, None)
        ]

    def open_leases(self) -> list[ModelLease]:
        return [lease for lease in self.leases.values() if lease.outcome is None]

    def delivery(self, event: ModelEvent) -> ModelDelivery | None:  # noqa: PLR0911 - one return a place
        """Where the event is: exactly one place."""
        lane, offset = self.lane(event), event.offset
        if not matches(self.types, None, event.event_type, None):
            return None
        if row := self.rows.get(offset):
            return ModelDelivery(row.state, row.attempts, row.failures)
        for lease in self.open_leases():
            if lease.is_range and offset in lease.members:
                return ModelDelivery(State.CLAIMED, lease.attempts, 0)
        for piece in self.returned:
            if piece.lane == lane and piece.low < offset <= piece.high:
                return ModelDelivery(State.PENDING, piece.attempts, 0)
        if offset in self.done:
            return ModelDelivery(State.PUBLISHED, self.done[offset], 0)
        if offset > self.cursor(lane):
            return ModelDelivery(State.PENDING, 0, 0)
        return None  # before the start of the group

    def resolved(self, row: ModelRow) -> bool:
        """Whether the key goes on behind this row."""
        if row.state is State.DEAD:
            return self.on_dead == "continue" or row.reason == Reason.SKIPPED
        return row.state is State.PUBLISHED

    # --- claim ---------------------------------------------------------------------------------------------------

    def claim(self, limit: int, claimed_by: str) -> ModelLease | None:
        """One lease of one kind, or None."""
        if limit == 0:
            return None
        self.reap()
        if self.paused:
            return None
        lease = self._claim_some_lane(limit, claimed_by)
        while lease is not None and not lease.members:  # a stretch without a member was passed
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
        """Whether rows go before the next range: a full lease of them, or one that has waited long enough."""
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
            lease.outcome = Outcome.SETTLED
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
        """Rows whose turn it is: from the lowest unresolved one of their key, ending before the first that is not due
        or is of another part."""
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

    # --- settle, release, extend ---------------------------------------------------------------------------------

    def holder(self, lease_id: int) -> ModelLease:
        """The open lease, or `LeaseLost`."""
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
        """Returns (published, failed, dead, released); the released end comes back after the delay. Those that `died`
        failed by taking their process down; of the `suspects` one did, and nobody knows which. Those with `effects`
        have them if, and only if, they succeed."""
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
        lease.outcome = Outcome.SETTLED
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
            self._put(lease, offset, State.PENDING, 0, self.now, SUSPECT, parts[offset])
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
        """Everything goes back, unblamed and due at once."""
        self._give_back(self.holder(lease_id), Outcome.RELEASED)

    def _give_back(self, lease: ModelLease, outcome: Outcome) -> None:
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
        """Take back what expired: ranges in pieces, lists in parts, a lone event as a failure."""
        expired = [lease for lease in self.open_leases() if lease.expires_at <= self.now]
        for lease in expired:
            if len(lease.members) == 1:
                self._fail(lease, lease.members[0], burying=False, part=alone(lease.members[0]))
            elif lease.is_range:
                for low, high, _ in cut(lease.members, lease.low, lease.high):
                    self.returned.append(ModelReturned(lease.lane, low, high, lease.attempts, self.now, lease.replay))
            else:
                for offset, part in suspect_parts(lease.id, lease.members).items():
                    self._put(lease, offset, State.PENDING, 0, self.now, SUSPECT, part)
            lease.outcome = Outcome.EXPIRED
        return len(expired)

    # --- operators -----------------------------------------------------------------------------------------------

    def rewind(self, target: int) -> None:
        """End all leases, forget the rows above the target, and put everything above it back."""
        for lease in self.open_leases():
            self._give_back(lease, Outcome.REWOUND)
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
        """Each lane becomes two, which inherit its cursor and its returned ranges."""
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
        """Let a halted key go on."""
        for offset, row in self.rows.items():
            if row.state is State.DEAD and self.events[offset - 1].key == key:
                row.reason = Reason.SKIPPED

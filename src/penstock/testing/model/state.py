"""The state of the model's group, and the place of each event in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from penstock.core import limits
from penstock.core.binding import matches
from penstock.core.delivery import Reason, State
from penstock.core.lanes import bucket_of, lane_of
from penstock.core.lease import LeaseOutcome
from penstock.core.retry import Retry


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
    outcome: LeaseOutcome | None = None


@dataclass(frozen=True, slots=True)
class ModelDelivery:
    """What the view `delivery` must show for one event."""

    state: State
    attempts: int
    failures: int


@dataclass
class GroupState:
    """One group: its events, its exception rows, its leases, and the events published as part of a range."""

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
    effects: list[int] = field(default_factory=list)  # the events whose effects happened, in this order
    rewinds: int = 0
    paused: bool = False
    _next_lease: int = 1

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
        """Return the delivery of an event, which is in exactly one place."""
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
        """Return whether the key continues after this row."""
        if row.state is State.DEAD:
            return self.on_dead == "continue" or row.reason == Reason.SKIPPED
        return row.state is State.PUBLISHED

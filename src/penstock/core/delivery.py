"""One event as seen by one group: its state and the fields that change with it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class State(StrEnum):
    """The four states of a delivery."""

    PENDING = "PENDING"
    CLAIMED = "CLAIMED"
    PUBLISHED = "PUBLISHED"
    DEAD = "DEAD"


class Reason(StrEnum):
    """Why a PENDING delivery waits as a row of its own (blocked and delayed are reasons, not states)."""

    RETRY = "retry"
    DELAYED = "delayed"
    BLOCKED = "blocked"
    RELEASED = "released"
    SUSPECT = "suspect"
    REDRIVEN = "redriven"
    REPLAYED = "replayed"
    RESCHEDULED = "rescheduled"
    KILLED = "killed"
    SKIPPED = "skipped"
    REWOUND = "rewound"


@dataclass(frozen=True, slots=True)
class Delivery:
    """The mutable part of a delivery; what the event *is* lives in the event."""

    state: State = State.PENDING
    attempts: int = 0
    failures: int = 0
    replays: int = 0
    available_at: datetime | None = None
    claimed_at: datetime | None = None
    claimed_by: str | None = None
    last_error: str | None = None
    error_code: str | None = None
    reason: str | None = None
    published_at: datetime | None = None
    dead_at: datetime | None = None

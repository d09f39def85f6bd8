"""One event as seen by one group: its state and the fields that change with it."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """The four states of a delivery."""

    PENDING = "PENDING"
    CLAIMED = "CLAIMED"
    PUBLISHED = "PUBLISHED"
    DEAD = "DEAD"


class Reason(StrEnum):
    """Why a delivery has a row of its own (blocked and delayed are reasons, not states)."""

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
    IMPORTED = "imported"
    PURGED = "purged"
    MENDED = "mended"

"""The circuit breaker of a group: while its target is down, only one event is tried now and then."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from penstock.core.limits import (
    CIRCUIT_ASKED_SECONDS,
    CIRCUIT_FIRST_SECONDS,
    CIRCUIT_LOOK_SECONDS,
    CIRCUIT_MOST_SECONDS,
)


@dataclass(frozen=True, slots=True)
class Circuit:
    """An open circuit as stored, shared by all processes that work for the group."""

    opened_at: datetime
    delay_seconds: float
    probe_at: datetime
    last_error: str | None
    error_code: str | None
    probe: int | None = None  # the lease that tries the target, or the last one that did
    probe_expires_at: datetime | None = None  # only while that lease is open

    def wait_until(self, now: datetime) -> datetime | None:
        """Return when to ask again; None if the caller may try the target with one event.

        While another worker tries it, ask often: if it succeeds, everybody continues at once.
        """
        if self.probe_expires_at is not None:
            return min(self.probe_expires_at, now + timedelta(seconds=CIRCUIT_LOOK_SECONDS))
        return self.probe_at if self.probe_at > now else None


def next_delay(delay_seconds: float, asked_seconds: float | None = None) -> float:
    """Return the seconds to wait after another failed probe; 0 stands for a closed circuit.

    `asked_seconds` is what the target itself asks for, which counts up to an hour.

    >>> next_delay(0.0), next_delay(4.0), next_delay(32.0), next_delay(0.0, 90.0)
    (1.0, 8.0, 60.0, 90.0)
    """
    delay = min(max(CIRCUIT_FIRST_SECONDS, 2 * min(delay_seconds, CIRCUIT_MOST_SECONDS)), CIRCUIT_MOST_SECONDS)
    return max(delay, min(asked_seconds or 0.0, CIRCUIT_ASKED_SECONDS))

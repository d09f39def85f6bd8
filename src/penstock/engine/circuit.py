"""One circuit a group: when its target is down, nothing is tried but one event now and then."""

from __future__ import annotations

from penstock.core.limits import CIRCUIT_FIRST_SECONDS, CIRCUIT_MOST_SECONDS


class Circuit:
    """Open after `Unavailable`; the delay doubles with every probe that fails, and one success closes it."""

    def __init__(self) -> None:
        self.delay = 0.0  # seconds until the next probe; 0 when closed

    @property
    def is_open(self) -> bool:
        return self.delay > 0

    def broke(self) -> float:
        """The target is down; returns how long to leave it alone."""
        self.delay = min(max(CIRCUIT_FIRST_SECONDS, 2 * self.delay), CIRCUIT_MOST_SECONDS)
        return self.delay

    def worked(self) -> None:
        """The target answers."""
        self.delay = 0.0

"""A clock that moves only when a test advances it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class VirtualClock:
    """A clock for `penstock.open(url, clock=…)`; it replaces the database's time.

    >>> clock = VirtualClock()
    >>> clock.advance(60) - clock.start
    datetime.timedelta(seconds=60)
    """

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self.start = start
        self._now = start

    def now(self) -> datetime:
        """Return the current virtual time."""
        return self._now

    def advance(self, seconds: float) -> datetime:
        """Move the clock forward; returns the new time."""
        self._now += timedelta(seconds=seconds)
        return self._now

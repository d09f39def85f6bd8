"""A clock that moves only when it is told to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class VirtualClock:
    """Give it to `penstock.open(url, clock=…)`: the log then takes its time from here, and not from its database.

    >>> clock = VirtualClock()
    >>> clock.advance(60) - clock.start
    datetime.timedelta(seconds=60)
    """

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self.start = start
        self._now = start

    def now(self) -> datetime:
        """The time it was set to."""
        return self._now

    def advance(self, seconds: float) -> datetime:
        """Let time pass; returns the new time."""
        self._now += timedelta(seconds=seconds)
        return self._now

"""How many events to claim at once: as many as take about `batch_seconds`."""

from __future__ import annotations

from penstock.core.limits import FIRST_LEASE, READ_WITH_CLAIM, SUSPECT_PIECES

_GROWTH = 8  # at most, from one lease to the next: one quick lease proves little
_SHARES = 6  # a lease takes at most one sixth of what is left
_LEAST_SECONDS = 0.1  # but not less than this: claiming would cost more than handling
_SAFE = 1_000  # events: after a lease of this size went well, stop being careful
_HELD_SHARE = 30  # leases shrink if more than one event in 30 is held back by its key
_HELD_LEAST = 1_000  # but not below this size
_WEIGHT = 0.5  # of the latest measurement


class Pace:
    """The measured speed of a group's handlers, and the lease size that follows from it.

    >>> pace = Pace(batch_seconds=2, batch_size=50_000)
    >>> pace.ran(64, seconds=12.8)  # 200 ms each
    >>> pace.limit
    10
    """

    def __init__(self, batch_seconds: float, batch_size: int, least: int = 1) -> None:
        self._seconds = batch_seconds
        self._most = batch_size
        self._rate: float | None = None
        self._least = least  # a batch handler gets full calls, however long they take
        self._limit = min(max(FIRST_LEASE, least), batch_size)
        self._left: int | None = None
        self._cap: int | None = None
        self._crowded: int | None = None

    @property
    def limit(self) -> int:
        """How many events to claim next; less near the end of the log, to leave some to the group's other workers."""
        if self._cap is not None:
            return min(self._cap, self._limit)
        limit = self._limit if self._crowded is None else min(self._limit, self._crowded)
        if self._left is None or self._rate is None:
            return limit
        if self._left < READ_WITH_CLAIM:  # caught up: so few are claimed and read in one statement
            return min(limit, READ_WITH_CLAIM)
        return min(limit, max(self._left // _SHARES, int(self._rate * _LEAST_SECONDS), self._least))

    def seconds_for(self, count: int) -> float:
        """Estimate the seconds that `count` events take; 0 if nothing was measured yet."""
        return 0.0 if self._rate is None else count / self._rate

    def saw(self, left: int | None) -> None:
        """Note how many events follow the last lease; None if unknown."""
        self._left = left

    @property
    def careful(self) -> bool:
        """Whether to work on one lease at a time: something dangerous is near."""
        return self._cap is not None

    def held(self, count: int, of: int) -> None:
        """Note how many events of a lease were held back by a failed one of their key; each costs a row.

        The held share is proportional to the size of the lease, so halving the lease halves the share.
        """
        fits = of * of // (count * _HELD_SHARE) if count else 2 * of  # the size that has the tolerated share
        if fits < of:
            self._crowded = max(_HELD_LEAST, of // 2, fits)
        elif self._crowded is not None and of >= self._crowded // 2:
            self._crowded = min(2 * self._crowded, max(fits, self._crowded)) if self._crowded < self._most else None

    def shrink(self, count: int) -> None:
        """Claim less at once, until the dangerous event of a lease of `count` is alone."""
        self._cap = max(1, count // SUSPECT_PIECES)

    def ran(self, count: int, seconds: float) -> None:
        """Note that `count` events took so many seconds."""
        if count < 1:
            return
        if self._cap is not None:
            self._cap = 2 * self._cap if self._cap < _SAFE else None
        rate = count / max(seconds, 1e-6)
        self._rate = rate if self._rate is None else _WEIGHT * rate + (1 - _WEIGHT) * self._rate
        wanted = int(self._rate * self._seconds)
        self._limit = max(self._least, min(wanted, self._limit * _GROWTH, self._most))

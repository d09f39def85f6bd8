"""How many events make a lease: as many as take about `batch_seconds`."""

from __future__ import annotations

from penstock.core.limits import FIRST_LEASE, SUSPECT_PIECES

_GROWTH = 8  # a lease is at most so many times the last one: one quick lease proves little
_SHARES = 6  # of what is left, one lease takes at most one
_LEAST_SECONDS = 0.1  # but never so little that claiming it costs more than handling it
_SAFE = 1_000  # events in a lease that went well: the danger is behind us
_HELD_SHARE = 30  # one event in so many may wait behind its key before leases get smaller
_HELD_LEAST = 1_000  # but not smaller than this
_WEIGHT = 0.5  # of the newest measurement


class Pace:
    """Learns how fast the handlers of a group are.

    >>> pace = Pace(batch_seconds=2, batch_size=50_000)
    >>> pace.ran(64, seconds=12.8)  # 200 ms each
    >>> pace.limit
    10
    """

    def __init__(self, batch_seconds: float, batch_size: int, least: int = 1) -> None:
        self._seconds = batch_seconds
        self._most = batch_size
        self._rate: float | None = None
        self._least = least  # a call that may take so many is given them, however long it takes
        self._limit = min(max(FIRST_LEASE, least), batch_size)
        self._left: int | None = None
        self._cap: int | None = None
        self._crowded: int | None = None

    @property
    def limit(self) -> int:
        """How many to claim next. Near the end of the log less, so that others who work for the group get a share."""
        if self._cap is not None:
            return min(self._cap, self._limit)
        limit = self._limit if self._crowded is None else min(self._limit, self._crowded)
        if self._left is None or self._rate is None:
            return limit
        return min(limit, max(self._left // _SHARES, int(self._rate * _LEAST_SECONDS), self._least))

    def seconds_for(self, count: int) -> float:
        """About how long so many events take; 0 where nobody knows."""
        return 0.0 if self._rate is None else count / self._rate

    def saw(self, left: int | None) -> None:
        """So many events lie behind the last lease; None where nobody knows."""
        self._left = left

    @property
    def careful(self) -> bool:
        """Whether one thing is to be done after the other: there is something dangerous about."""
        return self._cap is not None

    def held(self, count: int, of: int) -> None:
        """So many events of a lease waited behind a failed one of their key, and become rows, which are dear.

        The more of a key a lease holds, the more of it waits: in a lease of half the size half the share.
        """
        fits = of * of // (count * _HELD_SHARE) if count else 2 * of  # so many, and the share is as it should be
        if fits < of:
            self._crowded = max(_HELD_LEAST, of // 2, fits)
        elif self._crowded is not None and of >= self._crowded // 2:
            self._crowded = min(2 * self._crowded, max(fits, self._crowded)) if self._crowded < self._most else None

    def shrink(self, count: int) -> None:
        """Something in a lease of so many events is dangerous: take less at once, until it stands alone."""
        self._cap = max(1, count // SUSPECT_PIECES)

    def ran(self, count: int, seconds: float) -> None:
        """So many events took so long."""
        if count < 1:
            return
        if self._cap is not None:
            self._cap = 2 * self._cap if self._cap < _SAFE else None
        rate = count / max(seconds, 1e-6)
        self._rate = rate if self._rate is None else _WEIGHT * rate + (1 - _WEIGHT) * self._rate
        wanted = int(self._rate * self._seconds)
        self._limit = max(self._least, min(wanted, self._limit * _GROWTH, self._most))

"""How many events make a lease: as many as take about `batch_seconds`."""

from __future__ import annotations

from penstock.core.limits import FIRST_LEASE, SUSPECT_PIECES

_GROWTH = 8  # a lease is at most so many times the last one: one quick lease proves little
_WEIGHT = 0.5  # of the newest measurement


class Pace:
    """Learns how fast the handlers of a group are.

    >>> pace = Pace(batch_seconds=2, batch_size=50_000)
    >>> pace.ran(64, seconds=12.8)  # 200 ms each
    >>> pace.limit
    10
    """

    def __init__(self, batch_seconds: float, batch_size: int) -> None:
        self._seconds = batch_seconds
        self._most = batch_size
        self._rate: float | None = None
        self.limit = min(FIRST_LEASE, batch_size)

    def shrink(self) -> None:
        """Something in the last lease is dangerous: take less at once, until it stands alone."""
        self._rate = None
        self.limit = max(1, self.limit // SUSPECT_PIECES)

    def ran(self, count: int, seconds: float) -> None:
        """So many events took so long."""
        if count < 1:
            return
        rate = count / max(seconds, 1e-6)
        self._rate = rate if self._rate is None else _WEIGHT * rate + (1 - _WEIGHT) * self._rate
        wanted = int(self._rate * self._seconds)
        self.limit = max(1, min(wanted, self.limit * _GROWTH, self._most))

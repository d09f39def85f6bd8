"""How many events a pipeline claims at once."""

from __future__ import annotations

import threading

from penstock.core.limits import SUSPECT_PIECES


class Pace:
    """The size of the next batch: much smaller after one that could not be settled, and doubled by every success."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self.limit = most

    def shrink(self, members: int) -> None:
        """Claim less at once until the dangerous event of a lease is alone."""
        with self._lock:
            self.limit = max(1, min(self.limit, members // SUSPECT_PIECES))

    def grow(self) -> None:
        """Claim more again: a batch was settled."""
        with self._lock:
            self.limit = min(self._most, 2 * self.limit)

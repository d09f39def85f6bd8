"""The rate limit of each token: a bucket that fills at a steady rate and holds two seconds' worth."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from typing import Final

_MOST: Final = 10_000  # buckets that are remembered
_BURST_SECONDS: Final = 2.0


class RateLimit:
    """Counts the requests of each principal. Used by one event loop."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # what is left, and when that was

    def wait_seconds(self, principal: str) -> int:
        """Count a request; return 0, or, if it is one too many, after how many whole seconds another may come."""
        now = time.monotonic()
        most = self._per_second * _BURST_SECONDS
        left, then = self._buckets.pop(principal, (most, now))
        left = min(most, left + (now - then) * self._per_second)
        allowed = left >= 1
        self._buckets[principal] = (left - 1 if allowed else left, now)
        while len(self._buckets) > _MOST:
            self._buckets.popitem(last=False)
        return 0 if allowed else math.ceil((1 - left) / self._per_second)

"""What waiting and waking need: something that happens seldom, and a wait for one of several files."""

from __future__ import annotations

import math
import select
import time
from collections.abc import Sequence


class Seldom:
    """Says yes at most once in so many seconds. Safe for many threads: at worst two of them hear yes at once."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._next = 0.0

    def due(self) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._seconds
        return True


def readable(descriptors: Sequence[int], seconds: float | None) -> list[int]:
    """Wait until one of them can be read; which ones can."""
    poll = select.poll()
    for one in descriptors:
        poll.register(one, select.POLLIN)
    return [one for one, _ in poll.poll(None if seconds is None else math.ceil(1000 * seconds))]

"""Wait for another thread or process, but not without end."""

from __future__ import annotations

import time
from collections.abc import Callable

SHORTEST, LONGEST = 0.005, 0.1


def wait_until(condition: Callable[[], bool], what: str = "the condition to hold", seconds: float = 60) -> None:
    """Poll until the condition holds; TimeoutError after the deadline.

    Looking takes a fifth of the time at most: who is waited for needs the processor, too.
    """
    deadline = time.monotonic() + seconds
    while True:
        begun = time.monotonic()
        if condition():
            return
        now = time.monotonic()
        if now > deadline:
            raise TimeoutError(f"waited {seconds} s for {what}")
        time.sleep(min(LONGEST, max(SHORTEST, 4 * (now - begun))))

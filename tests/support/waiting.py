"""Wait for another thread or process, but not without end."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], what: str = "the condition to hold", seconds: float = 60) -> None:
    """Poll until the condition holds; TimeoutError after the deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds} s for {what}")
        time.sleep(0.005)

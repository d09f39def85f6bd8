"""Wait for what another process or thread is about to do, with an end to patience."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Return when the condition holds; fail when patience ends."""
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, "it did not happen"
        time.sleep(0.005)  # between two looks, not for anything to happen

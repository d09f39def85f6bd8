"""Crash points: every SQL statement of the store is a place where the process may die.

Give one of these to `penstock.open(url, hook=…)` in the process that is to die.
"""

from __future__ import annotations

import os
import signal


class StatementCounter:
    """Counts statements and remembers their names, to learn how many crash points an operation has."""

    def __init__(self) -> None:
        self.blocks: list[str] = []

    def __call__(self, when: str, block: str) -> None:
        if when == "before":
            self.blocks.append(block)

    def reset(self) -> None:
        """Forget what was counted."""
        self.blocks.clear()


class CrashPoint:
    """Kills its own process with SIGKILL before or after the n-th statement (counted from 1) once it is armed."""

    def __init__(self, when: str, number: int) -> None:
        if when not in ("before", "after"):
            raise ValueError('when must be "before" or "after"')
        self.when = when
        self.number = number
        self.armed = False
        self._seen = 0

    def arm(self) -> None:
        """Count from here on."""
        self.armed = True

    def __call__(self, when: str, block: str) -> None:
        if not self.armed or when != self.when:
            return
        self._seen += 1
        if self._seen == self.number:
            os.kill(os.getpid(), signal.SIGKILL)

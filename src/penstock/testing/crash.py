"""Crash points: a process may die before or after every SQL statement of the store.

Pass one of these to `penstock.open(url, hook=…)` in the process that should die.
"""

from __future__ import annotations

import os
import signal


class StatementCounter:
    """A hook that records the names of all statements, to find how many crash points an operation has."""

    def __init__(self) -> None:
        self.blocks: list[str] = []

    def __call__(self, when: str, block: str) -> None:
        if when == "before":
            self.blocks.append(block)

    def reset(self) -> None:
        """Clear the recorded names."""
        self.blocks.clear()


class CrashPoint:
    """A hook that, once armed, kills its process with SIGKILL before or after the n-th statement, counted from 1."""

    def __init__(self, when: str, number: int) -> None:
        if when not in ("before", "after"):
            raise ValueError('when must be "before" or "after"')
        self.when = when
        self.number = number
        self.armed = False
        self._seen = 0

    def arm(self) -> None:
        """Start counting."""
        self.armed = True

    def __call__(self, when: str, block: str) -> None:
        if not self.armed or when != self.when:
            return
        self._seen += 1
        if self._seen == self.number:
            os.kill(os.getpid(), signal.SIGKILL)

"""Submit the runs of schedules that are due. Any number of processes may do it: each run is submitted once."""

from __future__ import annotations

import time

from penstock.engine.outage import try_once
from penstock.log.log import Log

_SECONDS = 1.0


class ScheduleTicks:
    """Looks at the schedules once a second, however often `tick` is called."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._next = 0.0

    def tick(self) -> None:
        """Submit what is due, if it is time to look."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _SECONDS
            try_once(self._log.tick_schedules, "schedules")

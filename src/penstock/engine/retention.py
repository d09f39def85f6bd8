"""Remove finished jobs in the background, a little at a time."""

from __future__ import annotations

import logging
import time

from penstock.engine.outage import try_once
from penstock.errors import PermissionDenied
from penstock.log.log import Log

logger = logging.getLogger("penstock")


class Retention:
    """A round every few seconds, or at once while there is more to remove. Any number of processes may do this."""

    def __init__(self, log: Log, every_seconds: float) -> None:
        self._log = log
        self._every_seconds = every_seconds
        self._next = time.monotonic() + every_seconds
        self._refused = False

    def tick(self) -> None:
        """Do a round if it is time."""
        if self._refused or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._every_seconds
        try:
            try_once(self._round, "retention")
        except PermissionDenied as error:  # a role of its own making; the others may
            self._refused = True
            logger.warning("this role may not remove finished jobs, and leaves them to others: %s", error.message)

    def _round(self) -> None:
        if self._log.remove_finished_jobs().more:
            self._next = 0.0

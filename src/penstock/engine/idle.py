"""How an idle worker waits: until the log grows or something is due, with an upper limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from penstock.core.lease import Idle
from penstock.core.limits import IDLE_CLAIM_SECONDS, POLL_FIRST_SECONDS, POLL_MOST_SECONDS
from penstock.errors import AWAY
from penstock.log.log import Log

_GROWTH = 1.1  # of the pause between two looks: keeps it at a tenth of the time since something happened


class IdlePoll:
    """Waiting by polling the end of the log, which is cheaper than a claim."""

    def __init__(self, log: Log, stopping: threading.Event, until: Callable[[], bool] = lambda: False) -> None:
        self._log = log
        self._stopping = stopping
        self._until = until
        self._pause = POLL_FIRST_SECONDS

    def found(self) -> None:
        """Poll often again: there was work."""
        self._pause = POLL_FIRST_SECONDS

    def wait(self, idle: Idle) -> None:
        """Return when a claim may find something, or when stopping."""
        due = time.monotonic() + min(IDLE_CLAIM_SECONDS, IDLE_CLAIM_SECONDS if idle.seconds is None else idle.seconds)
        while not self._stopping.wait(min(self._pause, max(0.0, due - time.monotonic()))):
            self._pause = min(_GROWTH * self._pause, POLL_MOST_SECONDS)
            unseen = idle.horizon < idle.end  # an append is still open, or other workers hold the lanes
            if self._until() or time.monotonic() >= due or idle.paused or unseen or self._grew(idle.end):
                return

    def _grew(self, end: int) -> bool:
        try:
            return self._log.end() > end
        except AWAY:
            return True  # let the claim report it

"""What the log needs somebody to do now and then. Engines and `penstock serve` do it beside their own work.

Any number of processes may: each round is a short transaction of its own that takes turns with the others.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.core import limits
from penstock.core.codec import error_code
from penstock.core.log_fields import about
from penstock.core.observe import RoundEnded, everyone
from penstock.engine.outage import try_once
from penstock.errors import PermissionDenied
from penstock.log.log import Log

logger = logging.getLogger("penstock")
OPERATION_SECONDS = 1.0  # between two looks for stored operations


@dataclass(slots=True)
class Round:
    """Something to do every few seconds, or at once while `do` returns that there is more."""

    name: str
    every_seconds: float
    do: Callable[[], bool]
    next_at: float = field(default_factory=time.monotonic)
    refused: bool = False
    trouble: str = ""  # the last one, which is said once

    def tick(self) -> None:
        """Do it if it is time. An outage leaves it to the next time; nothing that goes wrong here stops an engine."""
        if self.refused or time.monotonic() < self.next_at:
            return
        self.next_at = time.monotonic() + self.every_seconds
        began, code = time.monotonic(), None
        try:
            try_once(self._once, self.name)
        except PermissionDenied as error:  # a role of its own making; the others may
            self.refused, code = True, error.code
            logger.warning(
                "this role may not %s, and leaves it to others: %s",
                self.name,
                error.message,
                extra=about("round_refused", code=code, round=self.name),
            )
        except Exception as error:
            code = error_code(error)
            self._say(f"{self.name}: {type(error).__name__}: {error}", code)

        everyone.emit(RoundEnded(self.name, time.monotonic() - began, code))

    def _say(self, words: str, code: str) -> None:
        if words != self.trouble:
            self.trouble = words
            logger.warning("%s", words, extra=about("round_failed", code=code, round=self.name))

    def _once(self) -> None:
        if self.do():
            self.next_at = 0.0


def rounds(log: Log, retention_seconds: float) -> list[Round]:
    """Return everything that is to be done around a log."""
    found = [
        Round("remove finished jobs", retention_seconds, lambda: log.remove_finished_jobs().more),
        Round("record metrics", limits.METRIC_SECONDS, lambda: _record(log)),
        Round("run operations", OPERATION_SECONDS, log.run_operations),
        Round("apply retention", retention_seconds, lambda: log.apply_retention().more),
    ]
    for one in found:
        one.next_at += one.every_seconds
    return found


def _record(log: Log) -> bool:
    log.record_metrics()
    return False  # once a minute is enough

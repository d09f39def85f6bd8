"""One line in the log of the process for an event that failed; a flood of equal ones is counted, not printed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.core.batch import Event
from penstock.core.lease import Failure
from penstock.core.limits import FAILURE_LINES, FAILURE_LINES_SECONDS
from penstock.core.observe import EventsFailed, Observed

logger = logging.getLogger("penstock")
_MOST_KINDS = 1_000  # remembered


@dataclass(slots=True)
class FailureLog:
    """An observer that logs what failed in one group, at most so many lines a minute for each kind of error."""

    clock: Callable[[], float] = time.monotonic
    _kinds: dict[str, _Told] = field(default_factory=dict)

    def __call__(self, observed: Observed) -> None:
        if not isinstance(observed, EventsFailed):
            return
        now = self.clock()
        for place, failure in sorted(observed.failures.items()):
            untold = self._turn(failure, now)
            if untold is None:
                continue
            event: Event = observed.events[place]
            more = f" (and {untold:,} like it since the last line)" if untold else ""
            logger.warning(
                "%s: %s@%d %s failed at attempt %d: %s [%s]%s",
                observed.group,
                event.stream,
                event.offset,
                event.event_id,
                event.attempts,
                _words(failure),
                failure.fingerprint,
                more,
            )

    def _turn(self, failure: Failure, now: float) -> int | None:
        """How many were left out before this one; None if this one is left out, too."""
        kind = failure.fingerprint or failure.code
        told = self._kinds.get(kind)
        if told is None:
            if len(self._kinds) >= _MOST_KINDS:
                self._kinds.clear()
            told = self._kinds[kind] = _Told(now)
        if now - told.since >= FAILURE_LINES_SECONDS:
            told.since, told.lines = now, 0
        if told.lines >= FAILURE_LINES:
            told.untold += 1
            return None
        untold, told.untold = told.untold, 0
        told.lines += 1
        return untold


@dataclass(slots=True)
class _Told:
    since: float
    lines: int = 0
    untold: int = 0


def _words(failure: Failure) -> str:
    """The error in one line, with the class of its exception."""
    text = failure.message.partition("\n")[0]
    if failure.error_type is None or text.startswith(failure.error_type):
        return text
    return f"{failure.error_type}: {text}"

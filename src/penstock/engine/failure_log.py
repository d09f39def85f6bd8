"""Log one line per failed event; repeated errors of one kind are counted, not printed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.core.batch import Event
from penstock.core.lease import Failure
from penstock.core.limits import FAILURE_LINES, FAILURE_LINES_SECONDS
from penstock.core.log_fields import about
from penstock.core.observe import EventsFailed, Observed

logger = logging.getLogger("penstock")
_MOST_KINDS = 1_000  # kinds of errors to remember


@dataclass(slots=True)
class FailureLog:
    """An observer that logs the failures of one group: up to `FAILURE_LINES` a kind per `FAILURE_LINES_SECONDS`."""

    clock: Callable[[], float] = time.monotonic
    _kinds: dict[str, _Logged] = field(default_factory=dict)

    def __call__(self, observed: Observed) -> None:
        if not isinstance(observed, EventsFailed):
            return
        now = self.clock()
        for place, failure in sorted(observed.failures.items()):
            skipped = self._admit(failure, now)
            if skipped is None:
                continue
            event: Event = observed.events[place]
            more = f" (and {skipped:,} more like it since the last line)" if skipped else ""
            logger.warning(
                "%s: %s@%d %s failed at attempt %d: %s [%s]%s",
                observed.group,
                event.stream,
                event.offset,
                event.event_id,
                event.attempts,
                _summary(failure),
                failure.fingerprint,
                more,
                extra=about(
                    "event_failed",
                    observed.group,
                    lease=observed.lease,
                    code=failure.code,
                    fingerprint=failure.fingerprint,
                    event_id=str(event.event_id),
                    offset=event.offset,
                    attempt=event.attempts,
                ),
            )

    def _admit(self, failure: Failure, now: float) -> int | None:
        """Return how many were skipped since the last line, or None to skip this one, too."""
        kind = failure.fingerprint or failure.code
        logged = self._kinds.get(kind)
        if logged is None:
            if len(self._kinds) >= _MOST_KINDS:
                self._kinds.clear()
            logged = self._kinds[kind] = _Logged(now)
        if now - logged.since >= FAILURE_LINES_SECONDS:
            logged.since, logged.lines = now, 0
        if logged.lines >= FAILURE_LINES:
            logged.skipped += 1
            return None
        skipped, logged.skipped = logged.skipped, 0
        logged.lines += 1
        return skipped


@dataclass(slots=True)
class _Logged:
    since: float
    lines: int = 0
    skipped: int = 0


def _summary(failure: Failure) -> str:
    """Return the first line of the error, with the class of its exception."""
    text = failure.message.partition("\n")[0]
    if failure.error_type is None or text.startswith(failure.error_type):
        return text
    return f"{failure.error_type}: {text}"

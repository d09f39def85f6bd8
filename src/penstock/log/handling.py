"""What a handler raises to say more than "failed". These are the user's exceptions, not refusals of Penstock."""

from __future__ import annotations

from penstock.core.limits import LEASE_SECONDS_MOST
from penstock.errors import InvalidInput


class Permanent(Exception):
    """This event can never succeed: DEAD at once, without a retry."""


class RetryLater(Exception):
    """Try again after so many seconds, whatever the backoff says."""

    def __init__(self, after_seconds: float, message: str = "retry later") -> None:
        number = isinstance(after_seconds, int | float) and not isinstance(after_seconds, bool)
        if not number or not 0 <= after_seconds <= LEASE_SECONDS_MOST * 52:
            raise InvalidInput(
                f"after_seconds must be a number between 0 and a year of seconds, not {after_seconds!r}."
            )
        super().__init__(message)
        self.after_seconds = after_seconds if type(after_seconds) is int else float(after_seconds)

    def __reduce__(self) -> tuple[type[RetryLater], tuple[float, str]]:
        return RetryLater, (self.after_seconds, str(self))


class Unavailable(Exception):
    """The target is down: nobody's fault, so no failure is counted and the rest of the lease goes back."""

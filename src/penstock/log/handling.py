"""What a handler raises to say more than "failed". These are the user's exceptions, not refusals of Penstock."""

from __future__ import annotations


class Permanent(Exception):
    """This event can never succeed: DEAD at once, without a retry."""


class RetryLater(Exception):
    """Try again after so many seconds, whatever the backoff says."""

    def __init__(self, after_seconds: float, message: str = "retry later") -> None:
        super().__init__(message)
        self.after_seconds = after_seconds


class Unavailable(Exception):
    """The target is down: nobody's fault, so no failure is counted and the rest of the lease goes back."""

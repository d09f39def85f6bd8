"""Exceptions that handlers raise to say more than "failed". They are not errors of Penstock."""

from __future__ import annotations

from typing import Any

from penstock.core import codec, fingerprint
from penstock.core.lease import Failure
from penstock.core.limits import LEASE_SECONDS_MOST
from penstock.errors import InvalidInput

_LATEST = LEASE_SECONDS_MOST * 52


class Permanent(Exception):
    """This event can never succeed: DEAD at once, without a retry."""


class RetryLater(Exception):
    """Retry after so many seconds, whatever the backoff says."""

    after_seconds: float | None = None  # None in a subclass that does not call __init__: the backoff applies

    def __init__(self, after_seconds: float, message: str = "retry later") -> None:
        if not _can_wait(after_seconds):
            raise InvalidInput(
                f"after_seconds must be a number between 0 and a year of seconds, not {after_seconds!r}."
            )
        super().__init__(message)
        self.after_seconds = after_seconds if type(after_seconds) is int else float(after_seconds)

    def __reduce__(self) -> tuple[type[RetryLater], tuple[float | None, str]]:
        return RetryLater, (self.after_seconds, str(self))


class Unavailable(Exception):
    """The target is down: no failure is counted, and the rest of the lease is released.

    It is tried again after a while that grows, but not before `after_seconds`, if that is set.
    """

    after_seconds: float | None = None


class Skipped(Exception):
    """The event needs no handling: PUBLISHED, with this reason."""


def _can_wait(seconds: Any) -> bool:
    return isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds <= _LATEST


def failure_of(error: Any) -> Failure:
    """Describe why an event did not succeed, from a text or an exception of any class."""
    if not is_a(error, BaseException):
        return fingerprint.of_text(codec.error_code(error), codec.error_text(error))
    try:
        after = error.after_seconds if is_a(error, RetryLater) or is_a(error, Unavailable) else None
        return fingerprint.of_exception(error, after if _can_wait(after) else None)
    except BaseException:  # from the user's properties and metaclasses
        return fingerprint.of_text("indescribable", "an exception that cannot be described")


def is_a(error: Any, kind: type[BaseException]) -> bool:
    """Test like isinstance, but without calling the object's own `__class__`, which may raise."""
    return issubclass(type(error), kind)

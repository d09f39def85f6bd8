"""The retry policy: how often to retry, how long to wait, and when to give up."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from penstock.core.moments import LONGEST_SECONDS
from penstock.core.signals import Permanent, RetryLater, Unavailable, is_a
from penstock.errors import InvalidInput

Classes = tuple[type[Exception], ...]
_STORED = ("max_attempts", "base_seconds", "factor", "cap_seconds", "jitter", "max_age_seconds")


@dataclass(frozen=True, slots=True)
class Retry:
    """How a group retries. With `max_attempts=3` the third failure is the last.

    `dead_for` and `retry_for` are classes of exceptions, and count for their subclasses, too. They are not stored: only
    the process that calls a handler or a job's function knows the classes.

    >>> Retry(base_seconds=2, factor=2, jitter=0).delay_seconds(3, u=0.0)
    8.0
    """

    max_attempts: int = 3
    base_seconds: float = 2.0
    factor: float = 2.0
    cap_seconds: float = 3600.0
    jitter: float = 0.1
    max_age_seconds: float | None = None
    dead_for: Classes = ()  # DEAD at once
    retry_for: Classes | None = None  # if given, all others are DEAD at once

    def __post_init__(self) -> None:
        if not isinstance(self.max_attempts, int) or isinstance(self.max_attempts, bool):
            raise InvalidInput("Retry.max_attempts must be a whole number.")
        if not 1 <= self.max_attempts < 2**31:
            raise InvalidInput("Retry.max_attempts must be at least 1, which means that the first failure is the last.")
        for name in ("base_seconds", "factor", "cap_seconds", "jitter", "max_age_seconds"):
            value = getattr(self, name)
            if value is None and name == "max_age_seconds":
                continue
            if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
                raise InvalidInput(f"Retry.{name} must be a finite number of at least 0.")
        if self.jitter > 1:
            raise InvalidInput("Retry.jitter must lie between 0 and 1.")
        _check_classes("dead_for", self.dead_for)
        if self.retry_for is not None:
            _check_classes("retry_for", self.retry_for)

    @property
    def stored(self) -> dict[str, Any]:
        """The part of it that a group stores, by its columns."""
        return {name: getattr(self, name) for name in _STORED}

    def without_classes(self) -> Retry:
        """Return the part of it that a group stores."""
        return replace(self, dead_for=(), retry_for=None)

    def storable(self) -> Retry:
        """Return it; raise `InvalidInput` if it has classes, which only handlers and jobs of an app can have."""
        if self.dead_for or self.retry_for is not None:
            raise InvalidInput(
                "dead_for and retry_for cannot be stored with a group: give them to @app.subscribe, @app.job or "
                "@app.schedule. In your own loop, settle what cannot succeed with dead={event: error}."
            )
        return self

    def gives_up(self, error: Any) -> bool:
        """Return whether what a handler raised makes its event DEAD at once, however many attempts are left."""
        if is_a(error, Permanent):
            return True
        if is_a(error, RetryLater) or is_a(error, Unavailable) or not is_a(error, BaseException):
            return False
        kind = type(error)
        if _among(kind, self.dead_for):
            return True
        return self.retry_for is not None and not _among(kind, self.retry_for)

    def with_attempts(self, max_attempts: int | None) -> Retry:
        """Return the same policy with another number of attempts; None leaves it as it is."""
        return self if max_attempts is None else replace(self, max_attempts=max_attempts)

    def delay_seconds(self, failures: int, *, u: float) -> float:
        """Return the seconds to wait after the n-th failure; `u` in [0, 1) is the caller's random number."""
        try:
            grown = self.base_seconds * self.factor ** (failures - 1)
        except OverflowError:
            grown = self.cap_seconds
        return min(self.cap_seconds, grown, LONGEST_SECONDS) * (1 - self.jitter * u)

    def exhausted(self, failures: int, *, age_seconds: float) -> bool:
        """Return whether to give up a delivery with so many failures, of an event this old."""
        return failures >= self.max_attempts or self.too_old(age_seconds)

    def too_old(self, age_seconds: float) -> bool:
        """Return whether an event this old is given up at its next failure, or when its target is unavailable."""
        return self.max_age_seconds is not None and age_seconds >= self.max_age_seconds


def _among(kind: type, classes: Classes) -> bool:
    """Test as `except` does: by inheritance, whatever a metaclass says."""
    return any(type.__subclasscheck__(one, kind) for one in classes)


def _check_classes(name: str, classes: Any) -> None:
    if not isinstance(classes, tuple):
        raise InvalidInput(f"Retry.{name} must be a tuple of exception classes, as in {name}=(ValueError,).")
    for one in classes:
        if not isinstance(one, type) or not type.__subclasscheck__(Exception, one):
            raise InvalidInput(f"Retry.{name} takes subclasses of Exception, not {one!r:.80}.")
        if any(type.__subclasscheck__(signal, one) for signal in (Permanent, RetryLater, Unavailable)):
            raise InvalidInput(f"Retry.{name} does not take {one.__name__}: raising it already says what happens.")

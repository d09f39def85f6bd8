"""The retry policy: how often to retry, how long to wait, and when to give up."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from penstock.core.moments import LONGEST_SECONDS
from penstock.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Retry:
    """How a group retries. With `max_attempts=3` the third failure is the last.

    >>> Retry(base_seconds=2, factor=2, jitter=0).delay_seconds(3, u=0.0)
    8.0
    """

    max_attempts: int = 3
    base_seconds: float = 2.0
    factor: float = 2.0
    cap_seconds: float = 3600.0
    jitter: float = 0.1
    max_age_seconds: float | None = None

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

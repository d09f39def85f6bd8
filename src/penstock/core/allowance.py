"""How many may be moved now at a rate: by the database's time, without a burst after a crash or a pause."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

BURST_SECONDS = 2.0  # what a runner may make up for, if it was late


class Allowance(NamedTuple):
    """How many may be moved now, and what follows if they are."""

    many: int
    rate_at: datetime  # up to when the rate is used up, once they are moved
    again: datetime  # when the next one may be moved


def allowance(rate: float, rate_at: datetime, now: datetime, most: int) -> Allowance:
    """Return how many may be moved at `rate` per second, if all up to `rate_at` were used up.

    >>> from datetime import UTC
    >>> began = datetime(2026, 7, 1, tzinfo=UTC)
    >>> allowance(50, began, began + timedelta(seconds=1), 1_000).many
    50
    >>> allowance(50, began, began + timedelta(hours=1), 1_000).many
    100
    """
    kept = timedelta(seconds=max(BURST_SECONDS, 1 / rate))
    since = min(max(rate_at, now - kept), now)
    # (a microsecond more: what is due at this very moment may be lost in the rounding)
    count = min(most, int(((now - since).total_seconds() + 1e-6) * rate))
    used = since + timedelta(seconds=count / rate)
    return Allowance(count, used, used + timedelta(seconds=1 / rate))

"""The lifecycle of a delivery: six transitions, and what follows a failed attempt."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from penstock.core.delivery import State
from penstock.core.retry import Retry
from penstock.errors import IllegalTransition

TRANSITIONS: Final = frozenset(
    {
        (State.PENDING, State.CLAIMED),
        (State.CLAIMED, State.PUBLISHED),
        (State.CLAIMED, State.PENDING),
        (State.CLAIMED, State.DEAD),
        (State.PUBLISHED, State.PENDING),
        (State.DEAD, State.PENDING),
    }
)


def allowed(before: State, after: State) -> bool:
    """Return whether a delivery may go from one state to the other.

    >>> allowed(State.PENDING, State.DEAD)
    False
    """
    return (before, after) in TRANSITIONS


def require(before: State, after: State) -> None:
    """Raise `IllegalTransition` unless the transition is one of the six."""
    if not allowed(before, after):
        raise IllegalTransition(f"{before} → {after} is not a transition of a delivery; nothing was changed.")


def next_attempt(
    retry: Retry,
    failures: int,
    *,
    created_at: datetime | None,
    now: datetime,
    u: float,
    retry_after_seconds: float | None = None,
) -> datetime | None:
    """Return when to retry a delivery with so many failures; None if it is DEAD.

    It is DEAD when the retry budget is used up or the event is too old. `retry_after_seconds`, set by the handler,
    replaces the backoff; `u` in [0, 1) is the caller's random number for the jitter.
    """
    age = 0.0 if created_at is None else (now - created_at).total_seconds()
    if retry.exhausted(failures, age_seconds=age):
        return None
    delay = retry.delay_seconds(failures, u=u) if retry_after_seconds is None else retry_after_seconds
    return now + timedelta(seconds=delay) if delay else now

"""The state machine: exactly six transitions, as a pure function from a delivery and a command to a delivery."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, assert_never

from penstock.core.delivery import Delivery, Reason, State
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


@dataclass(frozen=True, slots=True)
class Claim:
    claimed_by: str


@dataclass(frozen=True, slots=True)
class Publish:
    pass


@dataclass(frozen=True, slots=True)
class Retry:
    """A failed attempt that may be repeated at `available_at`."""

    error: str
    code: str
    available_at: datetime


@dataclass(frozen=True, slots=True)
class Release:
    """Given back without blame."""

    reason: Reason = Reason.RELEASED
    available_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Bury:
    """A failure that ends it."""

    error: str
    code: str


@dataclass(frozen=True, slots=True)
class Restart:
    """Redrive (DEAD) or replay (PUBLISHED): a new lifecycle with a fresh budget."""

    reason: Reason


Command = Claim | Publish | Retry | Release | Bury | Restart


def allowed(before: State, after: State) -> bool:
    """Whether the state machine knows this step.

    >>> allowed(State.PENDING, State.DEAD)
    False
    """
    return (before, after) in TRANSITIONS


def require(before: State, after: State) -> None:
    """Raise `IllegalTransition`, naming the rule, unless the step is one of the six."""
    if not allowed(before, after):
        raise IllegalTransition(f"{before} → {after} is not a transition of a delivery; nothing was changed.")


def transition(delivery: Delivery, command: Command, now: datetime) -> Delivery:
    """The delivery after the command; raises `IllegalTransition` where the state machine has no such step."""
    match command:
        case Claim(claimed_by):
            require(delivery.state, State.CLAIMED)
            return replace(
                delivery,
                state=State.CLAIMED,
                attempts=delivery.attempts + 1,
                claimed_at=now,
                claimed_by=claimed_by,
            )
        case Publish():
            require(delivery.state, State.PUBLISHED)
            return replace(_unclaimed(delivery), state=State.PUBLISHED, published_at=now, reason=None)
        case Retry(error, code, available_at):
            _require_claimed(delivery, State.PENDING)
            return replace(
                _unclaimed(delivery),
                state=State.PENDING,
                failures=delivery.failures + 1,
                last_error=error,
                error_code=code,
                available_at=available_at,
                reason=Reason.RETRY,
            )
        case Release(reason, available_at):
            _require_claimed(delivery, State.PENDING)
            return replace(_unclaimed(delivery), state=State.PENDING, reason=reason, available_at=available_at or now)
        case Bury(error, code):
            require(delivery.state, State.DEAD)
            return replace(
                _unclaimed(delivery),
                state=State.DEAD,
                failures=delivery.failures + 1,
                last_error=error,
                error_code=code,
                reason=None,
                dead_at=now,
            )
        case Restart(reason):
            if delivery.state is State.CLAIMED:  # CLAIMED → PENDING is a step, but not an operator's
                raise IllegalTransition(f"{delivery.state} → PENDING by {reason}: the lease decides.")
            require(delivery.state, State.PENDING)
            return Delivery(
                available_at=now,
                reason=reason,
                replays=delivery.replays + (reason is Reason.REPLAYED),
            )
        case _:
            assert_never(command)


def _require_claimed(delivery: Delivery, after: State) -> None:
    if delivery.state is not State.CLAIMED:
        raise IllegalTransition(f"{delivery.state} → {after} needs a claim; nothing was changed.")


def _unclaimed(delivery: Delivery) -> Delivery:
    return replace(delivery, claimed_at=None, claimed_by=None)

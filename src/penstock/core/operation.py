"""Operations on many deliveries: their kinds, states and phases, and which options a kind takes."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from penstock.core.limits import CANARIES
from penstock.errors import InvalidInput, OperationOption


class Kind(StrEnum):
    """What an operation does with deliveries."""

    REDRIVE = "redrive"
    REPLAY = "replay"
    REWIND = "rewind"
    PURGE = "purge"


class OperationState(StrEnum):
    """The states of an operation; the first two can still change."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"  # too many came back
    ABORTED = "aborted"  # by somebody
    DONE = "done"
    FAILED = "failed"  # its group is gone, or it cannot be done


class Phase(StrEnum):
    """What a running operation is about to do."""

    CANARY = "canary"  # move the canaries
    WAITING = "waiting"  # for their outcomes
    MOVING = "moving"  # the rest


ACTIVE: Final = frozenset({OperationState.RUNNING, OperationState.PAUSED})
STATES: Final = tuple(OperationState)
_WITH_OUTCOMES: Final = frozenset({Kind.REDRIVE, Kind.REPLAY})


def kind_of(kind: str) -> Kind:
    """Check the name of a kind."""
    try:
        return Kind(kind)
    except ValueError as error:
        raise InvalidInput(f"An operation is one of {', '.join(Kind)}, not {kind!r}.") from error


def check_options(kind: Kind, canary: object, rate_per_second: object, stop_on_return: object) -> None:
    """Check how carefully an operation goes; `OperationOption` for what its kind does not take."""
    given = {"canary": canary, "rate_per_second": rate_per_second, "stop_on_return": stop_on_return}
    for name in ("canary", "stop_on_return"):
        value = given[name]
        if value is not None:
            if kind not in _WITH_OUTCOMES:
                raise OperationOption(f"A {kind} takes no {name}: what it moves has no outcome to wait for.")
            _check_whole(name, value, CANARIES if name == "canary" else 2**31 - 1)
    if rate_per_second is None:
        return
    if kind is Kind.REWIND:
        raise OperationOption("A rewind takes no rate_per_second: it is one transaction.")
    usable = isinstance(rate_per_second, int | float) and not isinstance(rate_per_second, bool)
    if not usable or not 0.001 <= rate_per_second <= 1_000_000:  # type: ignore[operator]  # a number
        raise InvalidInput(f"rate_per_second must be between 0.001 and 1,000,000, not {str(rate_per_second)[:60]}.")


def _check_whole(name: str, value: object, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise InvalidInput(f"{name} must be a whole number from 1 to {most:,}, not {str(value)[:60]}.")

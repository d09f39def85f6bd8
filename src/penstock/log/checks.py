"""Checks of arguments, made before a transaction begins."""

from __future__ import annotations

import getpass
import uuid
from datetime import datetime
from typing import Any

from penstock.core.delivery import State
from penstock.core.event import check_key, check_offset, check_text, check_time, parse_event_id
from penstock.core.moments import LONGEST_SECONDS
from penstock.errors import InvalidInput


def count(value: Any, what: str) -> int:
    """Check a whole number of at least 0 that fits into a database's bigint."""
    return check_offset(value, what)


def seconds(value: Any, what: str, most: float = LONGEST_SECONDS) -> float:
    """Check a number of seconds of at least 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise InvalidInput(f"{what} must be a number between 0 and {most:.0f}, not {str(value)[:60]}.")
    return value


def event_of(value: Any) -> tuple[uuid.UUID | None, int | None]:
    """Return an event's id or its offset; the other is None."""
    if isinstance(value, int) and not isinstance(value, bool):
        return None, check_offset(value, "an offset")
    return parse_event_id(value), None


def position(value: Any, what: str) -> str | int | datetime:
    """Check a position: "beginning", "end", an offset or a time."""
    if isinstance(value, datetime):
        moment = check_time(value, what)
        assert moment is not None
        return moment
    if value in ("beginning", "end"):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return check_offset(value, what)
    raise InvalidInput(f'{what} is "beginning", "end", an offset or a datetime, not {str(value)[:60]!r}.')


def required_key(value: Any, what: str) -> str:
    """Check a key that must be given."""
    known = check_key(value, what)
    if known is None:
        raise InvalidInput(f"{what} is missing.")
    return known


def author(by: str | None) -> str:
    """Return the name for the audit; the user's if none was given."""
    return check_text(by, "by") or whoami()


def state_of(state: str) -> State:
    """Check the name of a state."""
    try:
        return State(state)
    except ValueError as error:
        raise InvalidInput(f"state must be one of {', '.join(State)}, not {state!r}.") from error


def whoami() -> str:
    """Return the user's name, or "unknown"."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"

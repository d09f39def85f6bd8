"""What callers pass in, checked before a transaction begins."""

from __future__ import annotations

import getpass
import uuid
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from penstock.core.delivery import State
from penstock.core.event import check_time, parse_event_id
from penstock.errors import InvalidInput
from penstock.stores.operate import Filter


def count(value: Any, what: str) -> int:
    """A whole number of at least 0."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidInput(f"{what} must be a whole number of at least 0, not {value!r}.")
    return value


def state_of(state: str) -> State:
    """One of the four states."""
    try:
        return State(state)
    except ValueError as error:
        raise InvalidInput(f"A state is one of {', '.join(State)}, not {state!r}.") from error


def ids_of(event_ids: Iterable[Any]) -> list[uuid.UUID]:
    """A list of event ids, each once."""
    if isinstance(event_ids, str):
        raise InvalidInput("event_ids must be a list of ids.")
    return list(dict.fromkeys(parse_event_id(one) for one in event_ids))


def filter_of(
    event_ids: Iterable[Any] | None,
    error: str | None,
    event_type: str | None,
    since: datetime | None,
    until: datetime | None,
) -> Filter:
    """Which deliveries an operator means."""
    return Filter(
        None if event_ids is None else ids_of(event_ids),
        error,
        event_type,
        check_time(since, "since"),
        check_time(until, "until"),
    )


def whoami() -> str:
    """The name for the audit, if none was given."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"

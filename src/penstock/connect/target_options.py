"""Checks of what a publisher is made with: a wrong option would fail every event, one after the other."""

from __future__ import annotations

import os
from collections.abc import Collection
from importlib.util import find_spec
from typing import Any

from penstock.errors import InvalidPublisher, MissingDependency

_MOST_SECONDS = 600.0  # a lease is kept for ten minutes of a call


def check_driver(module: str, extra: str) -> None:
    """Check that what speaks to the target is installed."""
    if find_spec(module) is None:
        raise MissingDependency(f"This publisher needs {module}: pip install 'penstock[{extra}]'.")


def check_seconds(value: Any) -> float:
    """Return how long a publisher waits for its target."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _MOST_SECONDS:
        raise InvalidPublisher(f"timeout_seconds is a number above 0, at most {_MOST_SECONDS:g}, not {value!r:.60}.")
    return value


def check_count(value: Any, what: str) -> int:
    """Return a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidPublisher(f"{what} is a number of at least 1, not {value!r:.60}.")
    return value


def check_name(value: Any, what: str) -> str | None:
    """Return text that is not empty and can be printed, or None."""
    if value is not None and (not isinstance(value, str) or not value or not value.isprintable()):
        raise InvalidPublisher(f"{what} is printable text, and not empty; {value!r:.60} is not.")
    return value


def check_path(value: Any, what: str) -> str:
    """Return the path of a file."""
    try:
        path = os.fspath(value)
    except TypeError:
        path = None
    if not isinstance(path, str) or not path or "\0" in path:
        raise InvalidPublisher(f"{what} is the path of a file, not {value!r:.60}.")
    return path


def check_statuses(value: Any) -> frozenset[int]:
    """Return the statuses of HTTP that say that a target is down; a success cannot be one of them."""
    if not isinstance(value, Collection) or isinstance(value, str | bytes):
        raise InvalidPublisher(f"unavailable is a list of HTTP statuses, not {value!r:.60}.")
    for one in value:
        if isinstance(one, bool) or not isinstance(one, int) or not 300 <= one <= 599:
            raise InvalidPublisher(f"unavailable has HTTP statuses from 300 to 599, not {one!r:.60}.")
    return frozenset(value)

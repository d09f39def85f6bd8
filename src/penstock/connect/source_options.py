"""Checks of what a source is declared with."""

from __future__ import annotations

from typing import Any

from penstock.core.event import check_key, check_name
from penstock.errors import InvalidSource


def check_text_option(value: Any, what: str) -> str:
    """Return text of a reasonable length, without a NUL."""
    text = check_key(value, what)
    if text is None:
        raise InvalidSource(f"{what} is missing.")
    return text


def check_positive(value: Any, what: str, most: float) -> float:
    """Return a number above 0, up to `most`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
        raise InvalidSource(f"{what} is a number above 0, at most {most:,g}, not {value!r:.60}.")
    return value


def check_count(value: Any, what: str, most: int) -> int:
    """Return a whole number from 1 up to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InvalidSource(f"{what} is a whole number above 0, at most {most:,}, not {value!r:.60}.")
    return value


def check_source_name(value: Any) -> str | None:
    """Return what the log should know a source by; None if it was not given."""
    return None if value is None else check_text_option(value, "name")


def check_start(value: Any) -> str:
    """Return where a new source begins."""
    if value not in ("beginning", "end"):
        raise InvalidSource(f'start is "beginning" or "end", not {value!r:.60}.')
    return str(value)


def default_type(given: Any, stream: str) -> str:
    """Return the type of events whose entries name none."""
    return check_name(given if given is not None else f"{stream}.entry", "type")

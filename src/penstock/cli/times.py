"""Times and positions as people type them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from penstock.cli import output
from penstock.cli.failures import Usage
from penstock.core.job import FOREVER
from penstock.errors import InvalidInput, NaiveDatetime

TIME_HELP = "ISO 8601 with a zone (2026-07-01T12:00Z), `now`, or relative: -1h, -30m, +10s"
_RELATIVE = re.compile(r"([+-])((?:\d+(?:\.\d+)?(?:ms|s|m|h|d|w))+)\Z")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


def parse_time(text: str, what: str, *, now: datetime | None = None) -> datetime:
    """An aware datetime.

    >>> parse_time("-1h30m", "since", now=datetime(2026, 7, 1, 12, tzinfo=UTC)).isoformat()
    '2026-07-01T10:30:00+00:00'
    """
    wanted = text.strip()
    base = now or datetime.now(UTC)
    if wanted == "now":
        return base
    try:
        if relative := _RELATIVE.match(wanted):
            return base + _distance(relative[2]) * (1 if relative[1] == "+" else -1)
        found = datetime.fromisoformat(wanted)
    except (ValueError, OverflowError) as error:
        raise InvalidInput(f"{what} {text!r} is no time: write {TIME_HELP}.") from error
    if found.tzinfo is None:
        moment = found.isoformat(timespec="minutes")
        raise NaiveDatetime(f"{what} {text!r} has no time zone: write {moment}Z for UTC, or {moment}+02:00.")
    return found


def parse_optional(text: str | None, what: str) -> datetime | None:
    """The time, or None where none was given."""
    return None if text is None else parse_time(text, what)


def parse_position(text: str, what: str) -> str | int | datetime:
    """`beginning`, `end`, an offset or a time."""
    wanted = text.strip()
    if wanted in ("beginning", "end"):
        return wanted
    return parse_offset(wanted, what) if wanted.isdecimal() else parse_time(wanted, what)


def parse_offset(text: str, what: str) -> int:
    """An offset as the database can hold it."""
    offset = int(text) if len(text) < 20 else 2**63
    if offset >= 2**63:
        raise InvalidInput(f"{what} {text[:40]!r} is larger than any offset.")
    return offset


def _distance(parts: str) -> timedelta:
    return timedelta(seconds=sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(parts)))


_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
KEEP_HELP = "Seconds, a time such as 90m or 7d, or forever"


def parse_keep(text: str | None, option: str) -> float | str | None:
    """How long something stays: seconds, or `forever`; None if nothing was said."""
    if text is None or text == FOREVER:
        return text
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if found is None:
        raise Usage(f"{option} takes seconds, a time such as 90m or 7d, or {FOREVER}, not {text!r}.")
    return float(found[1]) * _UNITS[found[2]]


def keep_text(seconds: float | None) -> str:
    """How long something stays, to look at."""
    return FOREVER if seconds is None else output.seconds(seconds)

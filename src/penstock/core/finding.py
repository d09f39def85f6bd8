"""Findings of a health check."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """The severity of a finding."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was checked, what was found, and what to do about it."""

    level: Level
    check: str
    what: str
    todo: str | None = None


def duration(seconds: float) -> str:
    """Format a duration in its most significant unit.

    >>> duration(0.85), duration(12), duration(180), duration(2 * 86_400)
    ('850ms', '12s', '3m', '2d')
    """
    for limit, size, unit in ((1, 0.001, "ms"), (120, 1, "s"), (7200, 60, "m"), (172_800, 3600, "h")):
        if abs(seconds) < limit:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds / 86_400:.0f}d"

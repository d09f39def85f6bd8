"""Bindings: which events a group wants, by type pattern and by header."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.core.limits import NAME_LENGTH
from penstock.errors import InvalidPattern

_SEGMENT = re.compile(r"[A-Za-z0-9_:-]+\Z")
_MOST_SEGMENTS = NAME_LENGTH // 2 + 1


FOREVER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Span:
    """The part of the log, (low, high], in which one binding of a group applies."""

    binding: int
    low: int
    high: int
    types: tuple[str, ...] | None
    type_regex: str | None
    headers: str | None  # as JSON

    @property
    def everything(self) -> bool:
        """Whether there is no filter."""
        return self.type_regex is None and self.headers is None

    def counted(self, by_type: Mapping[str, int]) -> int:
        """Count the events whose type matches, given counts by type; headers are ignored."""
        if self.type_regex is None:
            return sum(by_type.values())
        pattern = re.compile(self.type_regex)
        return sum(events for event_type, events in by_type.items() if pattern.match(event_type))


@dataclass(frozen=True, slots=True)
class Glob:
    """A pattern that SQLite can match.

    GLOB with bounds on the number of dots is exact: the dots of a name are those of the pattern plus those that its
    wildcards match.
    """

    glob: str
    min_dots: int
    max_dots: int


def check_pattern(pattern: str) -> str:
    """Return the pattern; raise `InvalidPattern` if it is not valid."""
    if not isinstance(pattern, str) or not 1 <= len(pattern) <= NAME_LENGTH:
        raise InvalidPattern(f"{pattern!r} is not a type pattern.")
    segments = pattern.split(".")
    for position, segment in enumerate(segments):
        last = position == len(segments) - 1
        if segment == "*" or (segment == ">" and last) or _SEGMENT.match(segment):
            continue
        raise InvalidPattern(f"{pattern!r} is not a type pattern: the segment {segment!r} is not valid.")
    return pattern


def check_patterns(patterns: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the valid patterns without duplicates; None means every type."""
    if patterns is None:
        return None
    if isinstance(patterns, str):
        raise InvalidPattern("types must be a list of patterns, not one string.")
    checked = tuple(dict.fromkeys(check_pattern(pattern) for pattern in patterns))
    if not checked:
        raise InvalidPattern("types must name at least one pattern; leave it out for every type.")
    return checked


def regex_of(patterns: Sequence[str] | None) -> str | None:
    """Build one regular expression that means the same to Python and to PostgreSQL."""
    if patterns is None:
        return None
    return "^(" + "|".join(_pattern_regex(pattern) for pattern in patterns) + ")$"


def _pattern_regex(pattern: str) -> str:
    parts = {"*": "[^.]+", ">": ".+"}
    return "[.]".join(parts.get(segment, segment) for segment in pattern.split("."))


def globs_of(patterns: Sequence[str]) -> list[Glob]:
    """Translate the patterns for SQLite."""
    return [glob for pattern in patterns for glob in _pattern_globs(pattern)]


def _pattern_globs(pattern: str) -> list[Glob]:
    segments = pattern.split(".")
    globbed = ["?*" if segment == "*" else segment for segment in segments]
    dots = len(segments) - 1
    if segments[-1] != ">":
        return [Glob(".".join(globbed), dots, dots)]
    head = globbed[:-1]
    if "?*" not in head:
        return [Glob(".".join([*head, "?*"]), dots, NAME_LENGTH)]
    # A wildcard before `>` could match dots that belong to the rest: use one exact glob for every possible length.
    return [
        Glob(".".join([*head, *(["?*"] if rest == 1 else ["*"] * rest)]), len(head) + rest - 1, len(head) + rest - 1)
        for rest in range(1, _MOST_SEGMENTS - len(head) + 1)
    ]


def matches(
    patterns: Sequence[str] | None,
    headers_wanted: Mapping[str, str] | None,
    event_type: str,
    headers: Mapping[str, str] | None,
) -> bool:
    """Return whether a binding covers an event.

    >>> matches(["order.*"], None, "order.created", None), matches(["order.*"], None, "order.line.added", None)
    (True, False)
    """
    if patterns is not None and not re.match(regex_of(patterns) or "", event_type):
        return False
    have = headers or {}
    return all(have.get(name) == value for name, value in (headers_wanted or {}).items())

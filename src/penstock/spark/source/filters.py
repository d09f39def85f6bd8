"""Which rows a read wants: from options, and from filters that Spark pushes down."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

_TICK = timedelta(microseconds=1)  # the resolution of times: turns > into >= and <= into <


@dataclass(frozen=True, slots=True)
class Wanted:
    """Rows with after < offset <= upto, since <= created_at < until, and one of these types, states and groups."""

    after: int = 0
    upto: int | None = None
    types: tuple[str, ...] | None = None
    states: tuple[str, ...] | None = None
    since: datetime | None = None
    until: datetime | None = None
    groups: tuple[str, ...] | None = None

    def narrowed(self, column: str, operator: str, value: Any) -> Wanted | None:
        """Add a condition, named as in Spark's filters; None if the database cannot apply it."""
        if column == "offset" and isinstance(value, int):
            return self._by_offset(operator, value)
        if column == "created_at" and isinstance(value, datetime) and value.tzinfo is not None:
            return self._by_time(operator, value)
        values = value if operator == "In" else (value,)
        if operator in ("EqualTo", "In") and all(isinstance(one, str) for one in values):
            return self._by_name(column, tuple(values))
        return None

    def _by_offset(self, operator: str, value: int) -> Wanted | None:
        lowest = {"GreaterThan": value, "GreaterThanOrEqual": value - 1, "EqualTo": value - 1}.get(operator)
        highest = {"LessThan": value - 1, "LessThanOrEqual": value, "EqualTo": value}.get(operator)
        if lowest is None and highest is None:
            return None
        after = self.after if lowest is None else max(self.after, lowest)
        upto = self.upto if highest is None else highest if self.upto is None else min(self.upto, highest)
        return replace(self, after=after, upto=upto)

    def _by_time(self, operator: str, value: datetime) -> Wanted | None:
        earliest = {"GreaterThan": value + _TICK, "GreaterThanOrEqual": value}.get(operator)
        latest = {"LessThan": value, "LessThanOrEqual": value + _TICK}.get(operator)
        if earliest is not None:
            return replace(self, since=earliest if self.since is None else max(self.since, earliest))
        if latest is not None:
            return replace(self, until=latest if self.until is None else min(self.until, latest))
        return None

    def _by_name(self, column: str, values: tuple[str, ...]) -> Wanted | None:
        if column == "event_type":
            return replace(self, types=_both(self.types, values))
        if column == "state":
            return replace(self, states=_both(self.states, values))
        if column == "group_name":
            return replace(self, groups=_both(self.groups, values))
        return None


def _both(before: tuple[str, ...] | None, values: tuple[str, ...]) -> tuple[str, ...]:
    return values if before is None else tuple(one for one in values if one in before)

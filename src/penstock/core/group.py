"""A group: its settings and its stored row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from penstock.core import codec, limits
from penstock.core.binding import Span, check_patterns
from penstock.core.circuit import Circuit
from penstock.core.job import PREFIX
from penstock.core.lanes import check_lanes
from penstock.core.retry import Retry
from penstock.errors import InvalidInput

Position = str | int | datetime  # "beginning", "end", an offset, or a time of creation


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """The settings of a group. A later declaration cannot change `ordering`, `keyed` or the binding."""

    retry: Retry
    lease_seconds: float
    ordering: str | None
    keyed: bool
    lanes: int
    on_dead: str
    types: tuple[str, ...] | None
    headers: Mapping[str, str] | None


def check_settings(
    *,
    retry: Retry | None = None,
    lease_seconds: float = limits.LEASE_SECONDS,
    ordering: str | None = None,
    keyed: bool = False,
    on_dead: str = "continue",
    types: Sequence[str] | None = None,
    headers: Mapping[str, str] | None = None,
    lanes: int | None = None,
) -> GroupSettings:
    """Check the settings of a group."""
    if ordering not in (None, "key"):
        raise InvalidInput(f'ordering is None or "key", not {ordering!r}.')
    check_on_dead(on_dead)
    check_lease_seconds(lease_seconds)
    wanted = check_lanes(limits.LANES_DEFAULT if lanes is None else lanes)
    codec.encode_headers(headers)
    return GroupSettings(
        retry=retry or Retry(),
        lease_seconds=float(lease_seconds),
        ordering=ordering,
        keyed=keyed,
        lanes=wanted if ordering is not None or keyed else 1,
        on_dead=on_dead,
        types=check_patterns(types),
        headers=dict(headers) if headers else None,
    )


def check_on_dead(on_dead: Any) -> str:
    """Check what a dead letter does to its key."""
    if on_dead not in ("continue", "halt"):
        raise InvalidInput(f'on_dead is "continue" or "halt", not {on_dead!r}.')
    return str(on_dead)


def check_lease_seconds(seconds: Any) -> float:
    """Check how long a lease lasts."""
    if not isinstance(seconds, int | float) or not 0 < seconds <= limits.LEASE_SECONDS_MOST:
        raise InvalidInput("lease_seconds must be a positive number of at most seven days.")
    return float(seconds)


@dataclass(frozen=True, slots=True)
class Group:
    """A group's policy and bindings as stored."""

    group_id: int
    stream: str
    group_name: str
    ordered: bool
    keyed: bool
    lanes: int
    starts: Sequence[int]
    floor: int
    matched_before: int
    on_dead: str
    lease_seconds: float
    retry: Retry
    rewinds: int
    rewound_upto: int
    paused: bool
    pause_reason: str | None
    created_at: datetime
    spans: tuple[Span, ...]
    circuit: Circuit | None = None  # open, because the target was unavailable

    @property
    def exclusive(self) -> bool:
        """Whether a lane of this group has at most one open lease."""
        return self.ordered or self.keyed

    @property
    def of_jobs(self) -> bool:
        """Whether its events are jobs: rows and ranges are claimed in the order of their offsets."""
        return self.stream.startswith(PREFIX)

    @property
    def halts(self) -> bool:
        """Whether a key stops at its dead letter."""
        return self.on_dead == "halt"

    @property
    def settings(self) -> GroupSettings:
        """The settings with which it could be created as it is now."""
        last = self.spans[-1]
        return GroupSettings(
            retry=self.retry,
            lease_seconds=self.lease_seconds,
            ordering="key" if self.ordered else None,
            keyed=self.keyed,
            lanes=self.lanes,
            on_dead=self.on_dead,
            types=last.types,
            headers=None if last.headers is None else orjson.loads(last.headers),
        )

    def lived(self, replay: int, low: int) -> bool:
        """Return whether events above `low`, in a range of this life, may have had an earlier life."""
        return replay > 0 or low < self.rewound_upto

    def span(self, binding: int) -> Span:
        """Return the part of the log in which a binding applies."""
        return next(span for span in self.spans if span.binding == binding)

    def span_after(self, cursor: int) -> Span:
        """Return the span that covers the next event above a cursor."""
        return next(span for span in self.spans if cursor < span.high)

"""A group: its settings and its stored row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict

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
    max_in_flight: int | None = None
    rate_per_second: float | None = None


class GroupOptions(TypedDict, total=False):
    """The settings of a group as they are passed to `create_group`; all of them have defaults."""

    retry: Retry | None
    lease_seconds: float
    ordering: str | None  # "key": the events of a key in order
    keyed: bool  # state by key without order
    on_dead: str  # "continue", or "halt": what a dead letter does to its key
    types: Sequence[str] | None
    headers: Mapping[str, str] | None
    lanes: int | None  # slices of the keys
    max_in_flight: int | None  # events in work at a time, over all workers
    rate_per_second: float | None  # events that are claimed, over all workers


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
    max_in_flight: int | None = None,
    rate_per_second: float | None = None,
) -> GroupSettings:
    """Check the settings of a group."""
    if retry is not None and not isinstance(retry, Retry):
        raise InvalidInput(f"retry must be a penstock.Retry, not {retry!r:.80}.")
    if ordering not in (None, "key"):
        raise InvalidInput(f'ordering is None or "key", not {ordering!r}.')
    check_on_dead(on_dead)
    check_lease_seconds(lease_seconds)
    wanted = check_lanes(limits.LANES_DEFAULT if lanes is None else lanes)
    codec.encode_headers(headers)
    return GroupSettings(
        retry=(retry or Retry()).storable(),
        lease_seconds=float(lease_seconds),
        ordering=ordering,
        keyed=keyed,
        lanes=wanted if ordering is not None or keyed else 1,
        on_dead=on_dead,
        types=check_patterns(types),
        headers=dict(headers) if headers else None,
        max_in_flight=check_max_in_flight(max_in_flight),
        rate_per_second=check_rate(rate_per_second),
    )


def check_max_in_flight(most: Any) -> int | None:
    """Check how many events may be in work at once; None is any number."""
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or not 1 <= most < 2**31):
        raise InvalidInput(f"max_in_flight must be a whole number of at least 1, not {str(most)[:60]}.")
    return most


def check_rate(rate: Any) -> float | None:
    """Check how many events may be claimed a second; None is any number."""
    if rate is None:
        return None
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= 10**9:
        raise InvalidInput(f"rate_per_second must be a positive number, not {str(rate)[:60]}.")
    return float(rate)


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
    max_in_flight: int | None = None
    rate_per_second: float | None = None

    @property
    def exclusive(self) -> bool:
        """Whether a lane of this group has at most one open lease."""
        return self.ordered or self.keyed

    @property
    def limited(self) -> bool:
        """Whether claims are limited over all workers."""
        return self.max_in_flight is not None or self.rate_per_second is not None

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
            max_in_flight=self.max_in_flight,
            rate_per_second=self.rate_per_second,
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

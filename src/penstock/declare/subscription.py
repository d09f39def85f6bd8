"""`Subscription`: handlers, their group, and how to run them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

from penstock.core import limits
from penstock.core.binding import check_patterns, matches
from penstock.core.event import check_name
from penstock.core.group import check_max_in_flight, check_rate
from penstock.core.lanes import check_lanes
from penstock.core.retry import Retry
from penstock.declare.around import Around
from penstock.errors import InvalidHandler, InvalidInput, PolicyConflict

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings of a group. All its handlers must declare the same ones."""

    start: str | int | datetime = "beginning"
    retry: Retry = field(default_factory=Retry)
    lease_seconds: float = limits.LEASE_SECONDS
    timeout_seconds: float = limits.TIMEOUT_SECONDS
    ordering: str | None = None
    isolation: str = "process"
    batch_size: int = limits.BATCH
    batch_seconds: float = limits.BATCH_SECONDS
    concurrency: int = 1
    on_dead: str = "continue"
    lanes: int = limits.LANES_DEFAULT
    headers: Mapping[str, str] | None = None
    keyed: bool | None = None
    memory_mb: int = limits.MEMORY_MB
    batch: int | None = None  # events per call, as a list; None: a single event
    max_in_flight: int | None = None
    rate_per_second: float | None = None

    def __post_init__(self) -> None:
        positive("lease_seconds", self.lease_seconds, limits.LEASE_SECONDS_MOST)
        positive("timeout_seconds", self.timeout_seconds, limits.LEASE_SECONDS_MOST)
        positive("batch_seconds", self.batch_seconds, limits.LEASE_SECONDS_MOST)
        check_whole("batch_size", self.batch_size, limits.BATCH)
        check_whole("concurrency", self.concurrency, limits.CONCURRENCY)
        check_whole("memory_mb", self.memory_mb, 2**31)
        if self.batch is not None:
            check_whole("batch", self.batch, self.batch_size)
        one_of("isolation", self.isolation, ("process", "inline"))
        one_of("ordering", self.ordering, (None, "key"))
        one_of("on_dead", self.on_dead, ("continue", "halt"))
        one_of("keyed", self.keyed, (None, True, False))
        if not isinstance(self.retry, Retry):
            raise InvalidInput(f"retry takes a penstock.Retry, not {self.retry!r}.")
        check_lanes(self.lanes)
        check_max_in_flight(self.max_in_flight)
        check_rate(self.rate_per_second)


@dataclass(frozen=True, slots=True)
class Handler:
    """A user's function, and how to call it."""

    function: Function
    types: tuple[str, ...] | None
    wants_context: bool
    is_async: bool

    @property
    def name(self) -> str:
        return getattr(self.function, "__qualname__", repr(self.function))


def handler_of(function: Function, types: Sequence[str] | None) -> Handler:
    """Check that a function takes an event, or an event and a context; `InvalidHandler` otherwise."""
    if not callable(function):
        raise InvalidHandler(f"{function!r} is not a function.")
    name = getattr(function, "__qualname__", repr(function))
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidHandler(f"{name} is a generator, so calling it would do nothing. Return instead of yielding.")
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise InvalidHandler(f"{name} has no readable signature: {error}.") from error
    positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    needed = [one for one in positional if one.default is one.empty]
    keyword_only = [one for one in parameters if one.kind is one.KEYWORD_ONLY and one.default is one.empty]
    if keyword_only or len(needed) > 2 or not positional:
        raise InvalidHandler(f"{name}{inspect.signature(function)} must take (event) or (event, ctx).")
    wants_context = len(needed) == 2 or (len(positional) > 1 and positional[1].name == "ctx")
    called = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)
    return Handler(function, check_patterns(types), wants_context, is_async)


@dataclass(slots=True)
class Subscription:
    """The handlers of one group; each event goes to the first one whose types match."""

    stream: str
    group: str
    policy: Policy
    handlers: list[Handler] = field(default_factory=list)
    around: Around = field(default_factory=Around, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_name(self.stream, "stream")
        check_name(self.group, "group")

    @property
    def name(self) -> str:
        return f"{self.stream}/{self.group}"

    @property
    def ordered(self) -> bool:
        return self.policy.ordering is not None

    @property
    def wants_context(self) -> bool:
        return any(handler.wants_context for handler in self.handlers)

    @property
    def may_have_effects(self) -> bool:
        """Whether something has a context: a handler, or what is around it."""
        return self.wants_context or bool(self.around.middleware)

    @property
    def keyed(self) -> bool:
        """Whether the group has keyed state; by default, if a handler takes a context."""
        return self.wants_context if self.policy.keyed is None else self.policy.keyed

    @property
    def exclusive(self) -> bool:
        """Whether a lane has at most one open lease."""
        return self.ordered or self.keyed

    @property
    def types(self) -> tuple[str, ...] | None:
        """The types of all handlers together: the group's binding. None is all types."""
        wanted: list[str] = []
        for handler in self.handlers:
            if handler.types is None:
                return None
            wanted += [pattern for pattern in handler.types if pattern not in wanted]
        return tuple(wanted)

    def join(self, policy: Policy, handler: Handler) -> None:
        """Add a handler; `PolicyConflict` if it disagrees with the others."""
        differing = [one.name for one in fields(Policy) if getattr(policy, one.name) != getattr(self.policy, one.name)]
        if differing:
            raise PolicyConflict(
                f"Two handlers of {self.name} disagree about {', '.join(differing)}: "
                f"{self.handlers[0].name} and {handler.name}."
            )
        if handler.is_async != self.handlers[0].is_async:
            raise PolicyConflict(
                f"{self.name} mixes plain and async handlers: {self.handlers[0].name} and {handler.name}."
            )
        self.handlers.append(handler)

    def handler_for(self, event_type: str) -> Handler | None:
        """Return the first handler that takes events of this type."""
        return next(
            (one for one in self.handlers if one.types is None or matches(one.types, None, event_type, None)), None
        )


def positive(what: str, value: Any, most: float) -> None:
    """Check a positive number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
        raise InvalidInput(f"{what} must be a positive number of at most {most:,g}, not {value!r}.")


def check_whole(what: str, value: Any, most: int) -> None:
    """Check a whole number from 1."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InvalidInput(f"{what} must be a whole number between 1 and {most:,}, not {value!r}.")


def one_of(what: str, value: Any, known: Sequence[Any]) -> None:
    """Check one of a few known values."""
    if not any(value is one or (isinstance(value, str) and value == one) for one in known):
        raise InvalidInput(f"{what} is one of {', '.join(map(repr, known))}, not {value!r}.")

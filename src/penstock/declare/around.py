"""What an app has around its calls and its processes: middleware, and hooks at their start and end."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

from penstock.declare.load import Reference, reference_to
from penstock.errors import InvalidHook


class Called(Protocol):
    """A handler or a job type."""

    @property
    def name(self) -> str: ...
    @property
    def is_async(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Hook:
    """A user's function, and how to call it."""

    function: Callable[..., Any]
    is_async: bool

    @property
    def name(self) -> str:
        return getattr(self.function, "__qualname__", repr(self.function))


@dataclass(slots=True, eq=False)
class Around:
    """The middleware and hooks of an app, in the order of their declaration. All its handlers and jobs share them."""

    middleware: list[Hook] = field(default_factory=list)
    on_start: list[Hook] = field(default_factory=list)
    on_stop: list[Hook] = field(default_factory=list)

    def add(self, function: Any, *surrounded: Sequence[Called]) -> None:
        """Add a middleware; `InvalidHook` if it does not fit around what is declared."""
        made = middleware_of(function)
        for one in (one for some in surrounded for one in some):
            Around([made]).check_fits(one.name, one.is_async)
        self.middleware.append(made)

    def check_fits(self, name: str, is_async: bool) -> None:
        """Raise `InvalidHook` if a plain middleware would be around an async function."""
        plain = next((one for one in self.middleware if not one.is_async), None)
        if is_async and plain is not None:
            raise InvalidHook(f"{plain.name} is a plain middleware, and {name} is async: declare it with `async def`.")


def middleware_of(function: Any) -> Hook:
    """Check that a function takes a call, an event and a context."""
    return _checked(function, ("call", "event", "ctx"))


def hook_of(function: Any) -> Hook:
    """Check that a function can be called without arguments."""
    return _checked(function, ())


def _checked(function: Any, given: Sequence[str]) -> Hook:
    wanted = f"({', '.join(given)})"
    if not callable(function):
        raise InvalidHook(f"{function!r:.80} is not a function of {wanted}.")
    name = getattr(function, "__qualname__", repr(function))
    called = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    for one in (function, called):
        if inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one):
            raise InvalidHook(f"{name} is a generator, so calling it would do nothing. Return instead of yielding.")
    try:
        inspect.signature(function).bind(*given)
    except (TypeError, ValueError) as error:
        raise InvalidHook(f"{name} must take {wanted}: {error}.") from error
    return Hook(function, inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called))


# --- on the way to another process -----------------------------------------------------------------------------------

Travelling = tuple[tuple[Reference, bool], ...]


@dataclass(frozen=True, slots=True)
class PortableAround:
    """The same by reference."""

    middleware: Travelling = ()
    on_start: Travelling = ()
    on_stop: Travelling = ()

    def load(self) -> Around:
        """Load the functions in this process; the same ones are loaded once."""
        return _loaded(self)


def portable_around(around: Around) -> PortableAround:
    """Pack it; `HandlerUnreachable` if another process could not find a function."""
    return PortableAround(_packed(around.middleware), _packed(around.on_start), _packed(around.on_stop))


def _packed(hooks: Sequence[Hook]) -> Travelling:
    return tuple((reference_to(one.function), one.is_async) for one in hooks)


@lru_cache(maxsize=64)
def _loaded(packed: PortableAround) -> Around:
    kinds = packed.middleware, packed.on_start, packed.on_stop
    return Around(*([Hook(reference.resolve(), is_async) for reference, is_async in some] for some in kinds))

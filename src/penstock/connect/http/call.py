"""A request, described apart from how it is sent: the same description serves both clients."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload
from urllib.parse import quote

import orjson

from penstock.connect.http.held import HeldTokens
from penstock.core import codec
from penstock.errors import InvalidInput

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request, and what becomes of the document that answers it (None for an empty answer)."""

    method: str
    path: str
    read: Callable[[Any], T]
    body: Mapping[str, Any] | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    key: str | None = None  # the Idempotency-Key
    wait: float = 0.0  # how long the service may take to answer, at least
    event_id: Any = None  # what to repeat the request with, if nobody knows whether it was done

    def content(self) -> bytes | None:
        """Return the body as JSON."""
        if self.body is None:
            return None
        try:
            encoded = orjson.dumps(self.body)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"The request cannot be encoded as JSON: {error}.") from error
        if b"null" in encoded and not codec.is_finite(self.body):
            raise InvalidInput("The request contains NaN or an infinite number, which JSON cannot represent.")
        return encoded


def path_of(*parts: Any) -> str:
    """Return a path below /v1 in which every part is quoted."""
    return "/v1/" + "/".join(quote(str(part), safe="") for part in parts)


def given(**fields: Any) -> dict[str, Any]:
    """Return the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


class Sender(Protocol):
    """A client that waits for its answers."""

    held: HeldTokens

    def send(self, call: Call[T], /) -> T: ...


class AsyncSender(Protocol):
    """A client whose answers are awaited."""

    held: HeldTokens

    async def send(self, call: Call[T], /) -> T: ...


class _Method(Generic[P, T]):
    """A method of both clients, made from a function that describes its request."""

    def __init__(self, about: Callable[..., Call[T]]) -> None:
        self._about = about

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: Sender, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncSender, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        if client is None:
            return self

        @wraps(self._about)
        def method(*args: P.args, **kwargs: P.kwargs) -> Any:
            return client.send(self._about(*self._first(client), *args, **kwargs))

        return method

    def _first(self, client: Any) -> tuple[Any, ...]:
        """Return what the description needs besides the caller's arguments."""
        return ()


class Verb(_Method[P, T]):
    """A method that needs nothing but its arguments."""

    def __init__(self, describe: Callable[P, Call[T]]) -> None:
        super().__init__(describe)


class HoldingVerb(_Method[P, T]):
    """A method of those who hold jobs: the client remembers the tokens of what it has claimed."""

    def __init__(self, describe: Callable[Concatenate[HeldTokens, P], Call[T]]) -> None:
        super().__init__(describe)

    def _first(self, client: Any) -> tuple[Any, ...]:
        return (client.held,)

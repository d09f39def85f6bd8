"""Leases over HTTP: what was claimed, and the ways to end it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from penstock.connect.http import decode
from penstock.connect.http.call import AsyncSender, Call, Sender, given, path_of
from penstock.connect.http.calls import event_fields
from penstock.connect.http.job_calls import failure
from penstock.core.batch import Event
from penstock.core.lease import Settled
from penstock.core.signals import RetryLater

P = ParamSpec("P")
T = TypeVar("T")


class HeldLease:
    """What both kinds of leases have: the events, and the token that settles them."""

    def __init__(self, sender: Any, document: Mapping[str, Any]) -> None:
        self._sender = sender
        self.id: int = document["id"]
        self.token: int = document["token"]
        self.stream: str = document["stream"]
        self.group: str = document["group"]
        self.claimed_by: str = document["claimed_by"]
        self.expires_at = datetime.fromisoformat(document["expires_at"])
        self.events = decode.events_of(document["events"], self.stream, document)

    def __len__(self) -> int:
        return len(self.events)

    def __repr__(self) -> str:
        return f"<Lease {self.id} of {self.group} on {self.stream}: {len(self)} events until {self.expires_at}>"

    def like(self, document: Mapping[str, Any]) -> Self:
        """Return another lease of the same client."""
        return type(self)(self._sender, document)


class _LeaseVerb(Generic[P, T]):
    """A method of both kinds of leases, made from the function that describes its request."""

    def __init__(self, describe: Callable[Concatenate[Any, P], Call[T]]) -> None:
        self._describe = describe

    @overload
    def __get__(self, lease: None, owner: type) -> Self: ...
    @overload
    def __get__(self, lease: Lease, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, lease: AsyncLease, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, lease: Any, owner: type) -> Any:
        if lease is None:
            return self

        @wraps(self._describe)
        def method(*args: P.args, **kwargs: P.kwargs) -> Any:
            return lease._sender.send(self._describe(lease, *args, **kwargs))

        return method


def _settle(
    lease: HeldLease,
    *,
    keep: Iterable[Any] = (),
    failed: Mapping[Any, Any] | None = None,
    dead: Mapping[Any, Any] | None = None,
    released: Iterable[Any] = (),
    done: Iterable[Any] = (),
    rest: str = "done",
    state: Mapping[str, Mapping[str, Any]] | None = None,
    emit: Sequence[Mapping[str, Any]] = (),
) -> Call[Settled]:
    """Report outcomes and effects in one transaction; see `penstock.Lease.settle`.

    Events named nowhere are done, or, with `rest="release"`, released.
    """
    body = {
        "token": lease.token,
        "keep": [_id(one) for one in keep],
        "failed": {_id(one): _failed(error) for one, error in (failed or {}).items()},
        "dead": {_id(one): failure(error) for one, error in (dead or {}).items()},
        "released": [_id(one) for one in released],
        "done": [_id(one) for one in done],
        "rest": rest,
        "state": state or {},
        "emit": [event_fields(one.get("payload"), one) for one in emit],
    }

    def read(document: Any) -> Settled:
        return replace(decode.settled_of(document), kept=[lease.like(one) for one in document["kept"]])

    return Call("POST", path_of("leases", lease.id, "settle"), read, body)


def _id(one: Any) -> str:
    return str(one.event_id if isinstance(one, Event) else one)


def _failed(error: Any) -> Any:
    said = failure(error)
    if isinstance(error, RetryLater) and error.after_seconds is not None:
        return {**said, "retry_in": error.after_seconds}
    return said


def _extend(lease: HeldLease, seconds: float | None = None) -> Call[datetime]:
    """Extend the lease to `seconds` (default: the group's `lease_seconds`) from now; returns the new end."""

    def read(document: Any) -> datetime:
        lease.expires_at = datetime.fromisoformat(document["expires_at"])
        return lease.expires_at

    return Call("POST", path_of("leases", lease.id, "extend"), read, given(token=lease.token, seconds=seconds))


def _release(lease: HeldLease) -> Call[Settled]:
    """Give everything back, due at once and without counting a failure."""
    return Call("POST", path_of("leases", lease.id, "release"), decode.settled_of, {"token": lease.token})


class Lease(HeldLease):
    """Claimed work. Settle it once, before it expires."""

    _sender: Sender

    settle = _LeaseVerb(_settle)
    extend = _LeaseVerb(_extend)
    release = _LeaseVerb(_release)


class AsyncLease(HeldLease):
    """Claimed work, whose methods are awaited."""

    _sender: AsyncSender

    settle = _LeaseVerb(_settle)
    extend = _LeaseVerb(_extend)
    release = _LeaseVerb(_release)

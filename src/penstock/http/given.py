"""What routes are given: the log, who asks and whether they may, and how bodies are shown to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, Any

from fastapi import Depends, Header, Path, Query, Request

from penstock.core.access import ADMIN, APPEND, OPERATE, READ, WORK, Access
from penstock.core.event import check_name
from penstock.core.group import Position
from penstock.errors import Forbidden, InvalidInput
from penstock.http.answers import Bodies
from penstock.http.polls import Polls
from penstock.log.log import Log

_LONGEST_OFFSET = 19  # digits; anything longer is an id


async def _log(request: Request) -> Log:
    log: Log = request.app.state.log
    return log


async def _polls(request: Request) -> Polls:
    polls: Polls = request.app.state.polls
    return polls


def require(access: Access, scope: str, stream: str) -> None:
    """`Forbidden` unless a scope is granted for a stream."""
    if not access.may(scope, stream):
        raise Forbidden(f"The token {access.name!r} does not have the scope {scope!r} for {stream!r}.")


def require_everywhere(access: Access, scope: str) -> None:
    """`Forbidden` unless a scope is granted for all streams."""
    if not access.may_everywhere(scope):
        raise Forbidden(f"The token {access.name!r} does not have the scope {scope!r} for all streams.")


def _may(scope: str) -> Callable[[Request], Awaitable[Access]]:
    """Check a scope, for the stream in the path if there is one; a route without one looks closer by itself."""

    async def check(request: Request) -> Access:
        access: Access = request.state.access
        stream, group = request.path_params.get("stream"), request.path_params.get("group")
        if not access.may_somewhere(scope):
            raise Forbidden(f"The token {access.name!r} does not have the scope {scope!r}.")
        if stream is not None:
            require(access, scope, check_name(stream, "stream"))
        if group is not None:
            check_name(group, "group")
        return access

    return check


async def _shown(request: Request) -> Bodies:
    return Bodies(request, request.state.access)


async def _carried(request: Request) -> Bodies:
    return Bodies(request, None)


TheLog = Annotated[Log, Depends(_log)]
ThePolls = Annotated[Polls, Depends(_polls)]
CanAppend = Annotated[Access, Depends(_may(APPEND))]
CanRead = Annotated[Access, Depends(_may(READ))]
CanWork = Annotated[Access, Depends(_may(WORK))]
CanOperate = Annotated[Access, Depends(_may(OPERATE))]
CanAdmin = Annotated[Access, Depends(_may(ADMIN))]
Shown = Annotated[Bodies, Depends(_shown)]  # for who looks: bodies need a scope of their own
Carried = Annotated[Bodies, Depends(_carried)]  # for who works: bodies are what they work on

Stream = Annotated[str, Path(description="The stream.", examples=["orders"])]
Group = Annotated[str, Path(description="The group.", examples=["fraud"])]
Cursor = Annotated[int, Query(ge=0, lt=2**63, description="The `next_cursor` of the page before.")]
NEWEST = 2**63 - 1
Before = Annotated[int, Query(ge=0, lt=2**63, description="The `next_cursor` of the page before; newest first.")]
Limit = Annotated[int, Query(ge=1, le=1_000, description="How many at most.")]
IdempotencyKey = Annotated[
    str | None,
    Header(alias="Idempotency-Key", description="Repeat a request with the same key, and it is done once."),
]
Wait = Annotated[float, Query(ge=0, description="Wait so many seconds for it, 20 at most.")]


def next_cursor(found: list[Any], limit: int) -> str | None:
    """Return where the next page begins; None after the last one."""
    return str(found[-1].offset) if len(found) == limit else None


def event_of(text: str) -> str | int:
    """Return an event by its id, or by its offset."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _LONGEST_OFFSET else text


def position_of(value: int | str, what: str) -> Position:
    """Return a position: "beginning", "end", an offset, or a time in ISO 8601."""
    if isinstance(value, int) or value in ("beginning", "end"):
        return value
    try:
        return datetime.fromisoformat(value)
    except ValueError as error:
        raise InvalidInput(f'{what} is "beginning", "end", an offset or a time, not {value[:60]!r}.') from error

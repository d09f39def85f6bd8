"""The log as a whole: what is wrong, who did what, how much room it takes, whose tokens there are."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from penstock.core.access import ADMIN, READ, texts_of
from penstock.errors import InvalidInput
from penstock.http.answers import Answer
from penstock.http.bodies import StrictRoute
from penstock.http.given import NEWEST, Before, CanAdmin, CanRead, Limit, TheLog, require, require_everywhere
from penstock.http.shapes import an_object, many, page
from penstock.http.spec import spec
from penstock.log.tokens import Token
from penstock.web.live import LIFE_SECONDS, Live
from penstock.web.live import stream as live_stream

router = APIRouter(prefix="/v1", tags=["system"], route_class=StrictRoute)
Seconds = Annotated[float, Query(ge=0, description="How long the stream lasts, 20 seconds at most.")]
_AT: Final = "2026-07-01T12:00:00+00:00"
_PROBLEM = {"kind": "paused", "grave": True, "stream": "orders", "group": "fraud", "what": "paused by ops: deploying"}
_PROBLEM |= {"since": _AT, "todo": "Fix the cause, then resume it."}
_ENTRY = {"id": 12, "at": _AT, "by": "ops", "action": "pause", "stream": "orders", "group": "fraud", "count": None}
_ENTRY |= {"detail": {"reason": "deploying"}}
_FINDING = {"level": "ok", "check": "leases", "what": "None has expired.", "todo": None}
_TOKEN = {"name": "billing", "scopes": ["read"], "created_at": _AT, "created_by": "ops", "revoked_at": _AT}


@router.get(
    "/problems",
    **spec("read", {"problems": [_PROBLEM]}, shape=an_object(problems=many("LogProblem")), reads=True),
)
def problems(log: TheLog, access: CanRead) -> Answer:
    """List what is wrong now, the worst first, in the streams that the token may read."""
    seen = [one for one in log.problems() if _sees(access, one.stream)]
    return Answer({"problems": [asdict(one) for one in seen]})


@router.get(
    "/audit", **spec("read", {"audit": [_ENTRY], "next_cursor": "12"}, shape=page("audit", "AuditEntry"), reads=True)
)
def audit(
    log: TheLog,
    access: CanRead,
    stream: str | None = None,
    group: str | None = None,
    cursor: Before = NEWEST,
    limit: Limit = 50,
) -> Answer:
    """List who did what, the newest first, in the streams that the token may read."""
    if stream is not None:
        require(access, READ, stream)
    elif group is not None:
        raise InvalidInput("A group is named with its stream.")
    found = log.audit(stream=stream, group=group, before=cursor, limit=limit)
    seen = [asdict(one) for one in found if _sees(access, one.stream)]
    return Answer({"audit": seen, "next_cursor": str(found[-1].id) if len(found) == limit else None})


@router.get("/doctor", **spec("read", {"findings": [_FINDING]}, shape=an_object(findings=many("Finding")), reads=True))
def doctor(log: TheLog, access: CanRead) -> Answer:
    """Check whether the database keeps its guarantees and whether anything is stuck. For tokens of all streams."""
    require_everywhere(access, READ)
    return Answer({"findings": [asdict(one) for one in log.examine()]})


@router.get(
    "/horizon",
    **spec(
        "read",
        {"horizon": 45, "last": 45, "holders": []},
        shape=an_object(horizon={"type": "integer"}, last={"type": "integer"}, holders=many("Holder")),
        reads=True,
    ),
)
def horizon(log: TheLog, access: CanRead) -> Answer:
    """Return where the horizon stands, and which open transactions hold it. For tokens of all streams."""
    require_everywhere(access, READ)
    return Answer(asdict(log.horizon()))


@router.get(
    "/sizes",
    **spec(
        "read",
        {"sizes": [{"name": "events", "bytes": 8192, "rows": 12}]},
        shape=an_object(sizes=many("Size")),
        reads=True,
    ),
)
def sizes(log: TheLog, access: CanRead) -> Answer:
    """List how much room the log takes. For tokens of all streams."""
    require_everywhere(access, READ)
    return Answer({"sizes": [asdict(one) for one in log.sizes()]})


@router.get("/tokens", **spec("admin", {"tokens": [_TOKEN]}, shape=an_object(tokens=many("Token")), reads=True))
def tokens(log: TheLog, access: CanAdmin) -> Answer:
    """List the tokens, without their secrets."""
    require_everywhere(access, ADMIN)
    return Answer({"tokens": [_token(one) for one in log.tokens()]})


@router.get(
    "/events/stream",
    **spec("read", {"id": "7", "data": "events leases"}, reads=True, media_type="text/event-stream"),
)
async def changes(request: Request, access: CanRead, seconds: Seconds = LIFE_SECONDS) -> Response:
    """Stream server-sent events: `data` is the names of what has changed (events, leases, audit, runs, beat).

    It ends after a while; send the last `id` as `Last-Event-ID` to hear what was missed.
    """
    live: Live = request.app.state.live
    return live_stream(live, request, seconds=min(seconds, LIFE_SECONDS))


def _sees(access: Any, stream: str | None) -> bool:
    return bool(access.may_everywhere(READ) if stream is None else access.may(READ, stream))


def _token(one: Token) -> dict[str, Any]:
    names = ("name", "created_at", "created_by", "revoked_at")
    return {name: getattr(one, name) for name in names} | {"scopes": texts_of(one.grants)}

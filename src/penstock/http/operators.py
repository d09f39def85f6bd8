"""What operators do to groups and their deliveries. The audit names the token."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import ConfigDict, Field
from starlette.responses import Response

from penstock.http.answers import Answer, moved
from penstock.http.bodies import Body, Flag, Moment, StrictRoute, Whole
from penstock.http.given import CanOperate, Group, Stream, TheLog, position_of
from penstock.http.spec import spec

router = APIRouter(prefix="/v1/streams/{stream}/groups/{group}", tags=["operators"], route_class=StrictRoute)
_ID = "0198f2b4-1111-7abc-8def-0123456789ab"
_MOVED = {"count": 3, "dry_run": False}
EventIds = Annotated[list[str], Field(max_length=1_000, description="At most 1,000.")]


class Replay(Body):
    """Which deliveries: a filter, or `all`."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"since": "2026-07-01T12:00:00Z", "dry_run": True}]})

    event_ids: EventIds | None = None
    type: str | None = None
    since: Moment | None = None
    until: Moment | None = None
    all: Flag = False
    dry_run: Flag = False


class Redrive(Replay):
    """Which dead letters: a filter, or `all`."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"error": "TimeoutError", "dry_run": True}]})

    error: str | None = None
    fingerprint: str | None = Field(None, description="`none` for those without one.")


class Rewind(Body):
    """Where to: "beginning", "end", an offset or a time."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"to": "beginning"}]})

    to: Whole | str
    state: str = "keep"
    dry_run: Flag = False


class Kill(Body):
    """Which deliveries to give up, and why."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"event_ids": [_ID], "reason": "fraudster"}]})

    event_ids: EventIds
    reason: str = "killed"
    dry_run: Flag = False


class Cancel(Kill):
    """Which deliveries are to end, running or not, and why."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"event_ids": [_ID], "reason": "a loop"}]})

    reason: str = "cancelled"


class Reschedule(Body):
    """Which deliveries become due when."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"event_ids": [_ID], "available_at": "2026-07-01T12:00:00Z"}]}
    )

    event_ids: EventIds
    available_at: Moment
    dry_run: Flag = False


class Skip(Body):
    """Which key goes on past its dead letters."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"key": "c-42"}]})

    key: str
    dry_run: Flag = False


class Pause(Body):
    """Why."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"reason": "deploying"}]})

    reason: str | None = None


_NAMED = ("unknown_group", "unknown_event", "in_flight", "illegal_transition")


@router.post("/redrive", **spec("operate", _MOVED, "unknown_group", "filter_needed", "naive_datetime"))
def redrive(log: TheLog, access: CanOperate, stream: Stream, group: Group, body: Redrive) -> Answer:
    """Give dead letters another life: DEAD → PENDING, with a fresh budget of attempts."""
    return moved(log.redrive(stream, group, by=access.name, **body.given()))


@router.post("/replay", **spec("operate", _MOVED, "unknown_group", "filter_needed", "naive_datetime", "pruned"))
def replay(log: TheLog, access: CanOperate, stream: Stream, group: Group, body: Replay) -> Answer:
    """Deliver again what was finished: PUBLISHED → PENDING."""
    return moved(log.replay(stream, group, by=access.name, **body.given()))


@router.post("/rewind", **spec("operate", _MOVED, "unknown_group", "naive_datetime", "pruned", "in_flight"))
def rewind(log: TheLog, access: CanOperate, stream: Stream, group: Group, body: Rewind) -> Answer:
    """Deliver everything above a position again; open leases end."""
    to = position_of(body.to, "to")
    return moved(log.rewind(stream, group, to=to, state=body.state, dry_run=body.dry_run, by=access.name))


@router.post("/kill", **spec("operate", _MOVED, *_NAMED))
def kill(log: TheLog, access: CanOperate, stream: Stream, group: Group, body: Kill) -> Answer:
    """Give up deliveries that wait: PENDING → CLAIMED → DEAD."""
    return moved(log.kill(stream, group, by=access.name, **body.given()))


@router.post(
    "/cancel", **spec("operate", _MOVED | {"running": 1}, "unknown_group", "unknown_event", "illegal_transition")
)
def cancel(log: TheLog, access: CanOperate, stream: Stream, group: Group, body: Cancel) -> Answer:
    """Give up what waits; the holders of what is claimed (`running`) are told with their next heartbeat."""
    return moved(log.cancel(stream, group, by=access.name, **body.given()))


@router.post("/reschedule", **spec("operate", _MOVED, *_NAMED, "naive_datetime"))
def reschedule(log: TheLog, access: CanOperate, stream: Stream, group: Group, body: Reschedule) -> Answer:
    """Change when PENDING deliveries become due."""
    return moved(log.reschedule(stream, group, by=access.name, **body.given()))


@router.post("/skip", **spec("operate", _MOVED, "unknown_group"))
def skip(log: TheLog, access: CanOperate, stream: Stream, group: Group, body: Skip) -> Answer:
    """Let a key go on that halted at a dead letter; the dead letter stays DEAD."""
    return moved(log.skip(stream, group, body.key, dry_run=body.dry_run, by=access.name))


@router.post("/pause", **spec("operate", None, "unknown_group", status=204))
def pause(log: TheLog, access: CanOperate, stream: Stream, group: Group, body: Pause | None = None) -> Response:
    """Give the group no new leases; open leases continue."""
    log.pause(stream, group, reason=None if body is None else body.reason, by=access.name)
    return Response(status_code=204)


@router.post("/resume", **spec("operate", None, "unknown_group", status=204))
def resume(log: TheLog, access: CanOperate, stream: Stream, group: Group) -> Response:
    """Continue after a pause."""
    log.resume(stream, group, by=access.name)
    return Response(status_code=204)

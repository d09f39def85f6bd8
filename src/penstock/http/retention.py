"""How long events stay, what is archived, and erasure."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

from fastapi import APIRouter
from pydantic import ConfigDict, Field

from penstock.core.access import ADMIN, READ
from penstock.http.answers import Answer
from penstock.http.bodies import Body, Number, StrictRoute
from penstock.http.given import CanAdmin, CanRead, Stream, TheLog, require
from penstock.http.shapes import an_object, many, ref
from penstock.http.spec import spec

router = APIRouter(prefix="/v1", tags=["retention"], route_class=StrictRoute)
_POLICY = {
    "stream": "orders",
    "keep": 2592000.0,
    "keep_dead": None,
    "archive": None,
    "pruned_upto": 41000,
    "waits_for": None,
    "set_at": "2026-07-01T12:00:00+00:00",
    "by": "ops",
}
_ARCHIVE = {
    "id": 3,
    "stream": "orders",
    "place": "s3://lake/orders",
    "low": 20000,
    "high": 41000,
    "complete_from": 0,
    "state": "done",
    "folder": "orders/_offsets-20001-41000-3-1f0c9a2b",
    "version": 1,
    "events": 21000,
    "bytes": 1804211,
    "by": "ops",
    "began_at": "2026-07-01T12:00:00+00:00",
    "ended_at": "2026-07-01T12:00:41+00:00",
}
_ERASED = {
    "event_id": "0198f2b4-1111-7abc-8def-0123456789ab",
    "stream": "orders",
    "offset": 42,
    "in_log": True,
    "files": ["orders/offsets-1-41000-1/part-00000.parquet"],
    "already": False,
}
_ONE = an_object(policy={"anyOf": [ref("RetentionPolicy"), {"type": "null"}]})


class SetRetention(Body):
    """How long events stay: seconds, or "forever"; what is not given stays as it is."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"keep": 2592000, "keep_dead": "forever"}]})

    keep: Number | str | None = Field(default=None, description='"forever" removes the policy.')
    keep_dead: Number | str | None = Field(default=None, description="After the death of a dead letter.")
    archive: str | None = Field(default=None, description='Remove only what is archived there; "none" ends that.')


class Erase(Body):
    """Why."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"reason": "request 77 of a customer"}]})

    reason: str


@router.get("/streams/{stream}/retention", **spec("read", {"policy": _POLICY}, shape=_ONE, reads=True))
def retention(log: TheLog, access: CanRead, stream: Stream) -> Answer:
    """Return how long the events of a stream stay; `policy` is null if they stay forever."""
    found = next((one for one in log.retention().streams if one.stream == stream), None)
    return Answer({"policy": None if found is None else asdict(found)})


@router.post("/streams/{stream}/retention", **spec("admin", {"policy": _POLICY}, shape=_ONE))
def set_retention(log: TheLog, access: CanAdmin, stream: Stream, body: SetRetention) -> Answer:
    """Set how long the events of a stream stay."""
    policy = log.set_retention(stream, by=access.name, **body.given())
    return Answer({"policy": None if policy is None else asdict(policy)})


@router.get(
    "/archives", **spec("read", {"archives": [_ARCHIVE]}, shape=an_object(archives=many("Archive")), reads=True)
)
def archives(log: TheLog, access: CanRead) -> Answer:
    """List the archives of the streams that the token may read."""
    return Answer({"archives": [asdict(one) for one in log.archives() if access.may(READ, one.stream)]})


@router.post(
    "/events/{event_id}/erase",
    **spec(
        "admin", _ERASED, "unknown_event", "in_flight", "archive_unavailable", "archive_damaged", shape=ref("Erased")
    ),
)
def erase(log: TheLog, access: CanAdmin, event_id: str, body: Erase) -> Answer:
    """Erase the payload of an event, in the log and in archives. Needs the scope for its stream."""
    may = partial(require, access, ADMIN)
    return Answer(asdict(log.erase(event_id, reason=body.reason, by=access.name, check=may)))

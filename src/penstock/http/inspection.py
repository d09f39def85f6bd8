"""Look at streams, deliveries, state and stats; nothing is changed."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from fastapi import APIRouter

from penstock.core.access import PAYLOAD, READ
from penstock.http.answers import Answer, delivery_document
from penstock.http.bodies import Moment, StrictRoute
from penstock.http.events import EVENT
from penstock.http.given import (
    CanRead,
    Cursor,
    Group,
    Limit,
    Shown,
    Stream,
    TheLog,
    event_of,
    next_cursor,
    require,
)
from penstock.http.shapes import an_object, many, page, ref
from penstock.http.spec import spec
from penstock.log.stats import GroupStats

router = APIRouter(prefix="/v1", tags=["inspection"], route_class=StrictRoute)
_DELIVERY = EVENT | {
    "group": "fraud",
    "state": "DEAD",
    "attempts": 3,
    "failures": 3,
    "last_error": "no such customer",
    "error_code": "ValueError",
    "dead_at": "2026-07-01T12:05:00+00:00",
}
_LINE = {"attempt": 1, "outcome": "failed", "at": "2026-07-01T12:00:10+00:00", "by": "w-1", "error": "no such customer"}
_GROUP = {
    "stream": "orders",
    "group": "fraud",
    "pending": 3,
    "claimed": 1,
    "published": 40,
    "dead": 1,
    "lag": 4,
    "oldest_seconds": 1.5,
    "paused": False,
}
_SERIES = {
    "stream": "orders",
    "group": "fraud",
    "since": "2026-07-01T11:00:00+00:00",
    "until": "2026-07-01T12:00:00+00:00",
    "step_seconds": 60,
    "points": [
        {
            "at": "2026-07-01T11:00:00+00:00",
            "published": 40,
            "failed": 1,
            "dead": 0,
            "released": 0,
            "appended": 42,
            "lag": 4,
            "oldest_seconds": 1.5,
            "pending": 3,
            "claimed": 1,
            "retrying": 1,
            "dead_letters": 1,
        }
    ],
}
_JOB_TYPE = {
    "type": "email:send",
    "queue": "default",
    "pending": 3,
    "claimed": 1,
    "completed_total": 1200,
    "exhausted_total": 2,
}


@router.get("/streams", **spec("read", {"streams": ["orders"]}, reads=True))
def streams(log: TheLog, access: CanRead) -> Answer:
    """List the streams that the token may read."""
    return Answer({"streams": [one for one in log.streams() if access.may(READ, one)]})


@router.get(
    "/stats",
    **spec(
        "read",
        {"horizon": 45, "streams": [{"stream": "orders", "events": 45}], "groups": [_GROUP], "job_types": [_JOB_TYPE]},
        "unknown_group",
        shape=an_object(
            horizon={"type": "integer"},
            streams=many("StreamStats"),
            groups=many("GroupStats"),
            job_types=many("JobTypeStats"),
        ),
        reads=True,
    ),
)
def stats(log: TheLog, access: CanRead) -> Answer:
    """Return counts per state, lag and age of all groups of the streams that the token may read."""
    found = log.stats()
    seen = replace(found, groups=tuple(one for one in found.groups if access.may(READ, one.stream)))
    counted = [asdict(one) for one in found.streams if access.may(READ, one.stream)]
    groups, types = [_group(one) for one in seen.groups], [asdict(one) for one in seen.job_types]
    return Answer({"horizon": found.horizon, "streams": counted, "groups": groups, "job_types": types})


def _group(one: GroupStats) -> dict[str, Any]:
    """Return the stats of a group; only those of jobs have totals."""
    totals = ("completed_total", "exhausted_total")
    return {name: value for name, value in asdict(one).items() if value is not None or name not in totals}


@router.get(
    "/streams/{stream}/series",
    **spec("read", _SERIES | {"group": None}, "naive_datetime", shape=ref("Series"), reads=True),
)
def stream_series(
    log: TheLog,
    access: CanRead,
    stream: Stream,
    since: Moment | None = None,
    until: Moment | None = None,
    step_seconds: int | None = None,
) -> Answer:
    """Return what was appended to a stream over time, in buckets of `step_seconds`; everything else is null."""
    return Answer(asdict(log.series(stream, since=since, until=until, step_seconds=step_seconds)))


@router.get(
    "/streams/{stream}/groups/{group}/series",
    **spec("read", _SERIES, "unknown_group", "naive_datetime", shape=ref("Series"), reads=True),
)
def group_series(
    log: TheLog,
    access: CanRead,
    stream: Stream,
    group: Group,
    since: Moment | None = None,
    until: Moment | None = None,
    step_seconds: int | None = None,
) -> Answer:
    """Return the numbers of a group over time, in buckets of `step_seconds`; null where nobody sampled."""
    return Answer(asdict(log.series(stream, group, since=since, until=until, step_seconds=step_seconds)))


@router.get(
    "/streams/{stream}/groups/{group}/deliveries",
    **spec(
        "read",
        {"deliveries": [_DELIVERY], "next_cursor": "42"},
        "unknown_group",
        "naive_datetime",
        shape=page("deliveries", "Delivery"),
        reads=True,
    ),
)
def deliveries(
    log: TheLog,
    access: CanRead,
    shown: Shown,
    stream: Stream,
    group: Group,
    state: str | None = None,
    type: str | None = None,
    error: str | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
    fingerprint: str | None = None,
    purged: bool = False,
    cursor: Cursor = 0,
    limit: Limit = 100,
) -> Answer:
    """List deliveries in offset order, by state, type, error and time of creation.

    With `state=DEAD` those that were purged or mended are left out, unless `purged` asks for them.
    """
    which: dict[str, Any] = {"state": state, "type": type, "error": error, "since": since, "until": until}
    which |= {"fingerprint": fingerprint, "purged": purged}
    found = log.deliveries(stream, group, after=cursor, limit=limit, **which)
    documents = [delivery_document(one, shown) for one in found]
    return Answer({"deliveries": documents, "next_cursor": next_cursor(found, limit)})


@router.get(
    "/streams/{stream}/groups/{group}/deliveries/{event_id}",
    **spec(
        "read", _DELIVERY | {"history": [_LINE]}, "unknown_group", "unknown_event", shape=ref("Delivery"), reads=True
    ),
)
def delivery(log: TheLog, access: CanRead, shown: Shown, stream: Stream, group: Group, event_id: str) -> Answer:
    """Return one delivery with its history; the event by its id or its offset."""
    return Answer(delivery_document(log.delivery(stream, group, event_of(event_id)), shown, history=True))


@router.get(
    "/state/{stream}/{group}/{key:path}",
    **spec("read", {"state": {"seen": 3}}, "unknown_group", shape=an_object(state={"type": "object"}), reads=True),
)
def state(log: TheLog, access: CanRead, stream: Stream, group: Group, key: str) -> Answer:
    """Return the state of one key. Its values are bodies: this needs the scope `payload`, too."""
    require(access, PAYLOAD, stream)
    return Answer({"state": log.state(stream, group, key)})

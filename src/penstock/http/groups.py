"""Create, bind and delete groups."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import ConfigDict
from starlette.responses import Response

from penstock.core.retry import Retry
from penstock.http.answers import Answer, group_document
from penstock.http.bodies import Body, Flag, Number, StrictRoute, Whole
from penstock.http.given import CanAdmin, CanRead, Group, Stream, TheLog, position_of
from penstock.http.shapes import an_object, many, ref
from penstock.http.spec import spec

router = APIRouter(prefix="/v1/streams/{stream}/groups", tags=["groups"], route_class=StrictRoute)
RETRY = {
    "max_attempts": 3,
    "base_seconds": 2.0,
    "factor": 2.0,
    "cap_seconds": 3600.0,
    "jitter": 0.1,
    "max_age_seconds": None,
}
GROUP = {
    "stream": "orders",
    "group": "fraud",
    "ordering": None,
    "keyed": False,
    "lanes": 1,
    "on_dead": "continue",
    "lease_seconds": 60.0,
    "retry": RETRY,
    "types": ["order.*"],
    "headers": None,
    "paused": False,
    "pause_reason": None,
    "created_at": "2026-07-01T12:00:00+00:00",
}


class RetryPolicy(Body):
    """How a group retries; what is not given has its default."""

    max_attempts: Whole = 3
    base_seconds: Number = 2.0
    factor: Number = 2.0
    cap_seconds: Number = 3600.0
    jitter: Number = 0.1
    max_age_seconds: Number | None = None


class Binding(Body):
    """Which events a group receives."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"types": ["order.*"]}]})

    types: list[str] | None = None
    headers: dict[str, str] | None = None


class NewGroup(Binding):
    """A group and its settings."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"group": "fraud", "types": ["order.*"]}]})

    group: str
    start: Whole | str = "beginning"
    retry: RetryPolicy | None = None
    lease_seconds: Number | None = None
    ordering: str | None = None
    keyed: Flag = False
    on_dead: str = "continue"
    lanes: Whole | None = None

    def settings(self) -> dict[str, Any]:
        """Return the settings as the log takes them."""
        found = {name: value for name, value in self.given().items() if name != "group" and value is not None}
        if self.retry is not None:
            found["retry"] = Retry(**self.retry.model_dump())
        return found | {"start": position_of(self.start, "start")}


@router.get("", **spec("read", {"groups": [GROUP]}, shape=an_object(groups=many("Group")), reads=True))
def groups(log: TheLog, access: CanRead, stream: Stream) -> Answer:
    """List the groups of a stream with their policy."""
    return Answer({"groups": [group_document(one) for one in log.groups(stream)]})


@router.post(
    "",
    **spec(
        "admin", GROUP, "group_exists", "invalid_pattern", "naive_datetime", "pruned", shape=ref("Group"), status=201
    ),
)
def create(log: TheLog, access: CanAdmin, stream: Stream, body: NewGroup) -> Answer:
    """Create a group. The same request again changes nothing; other settings are refused."""
    return Answer(group_document(log.create_group(stream, body.group, **body.settings())), status_code=201)


@router.post("/{group}/bind", **spec("admin", {"after": 42}, "unknown_group", "invalid_pattern"))
def bind(log: TheLog, access: CanAdmin, stream: Stream, group: Group, body: Binding) -> Answer:
    """Change which events the group receives, for events above the offset that is returned."""
    return Answer({"after": log.bind(stream, group, types=body.types, headers=body.headers, by=access.name)})


@router.delete("/{group}", **spec("admin", None, "unknown_group", "in_flight", status=204, reads=True))
def delete(log: TheLog, access: CanAdmin, stream: Stream, group: Group) -> Response:
    """Delete a group and its deliveries; the events stay."""
    log.delete_group(stream, group, by=access.name)
    return Response(status_code=204)

"""How streams and groups stand: lanes, leases, keys that are held back, bindings and types."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter

from penstock.http.answers import Answer
from penstock.http.bodies import StrictRoute
from penstock.http.given import CanRead, Group, Stream, TheLog
from penstock.http.shapes import an_object, many
from penstock.http.spec import spec

router = APIRouter(prefix="/v1/streams/{stream}", tags=["inspection"], route_class=StrictRoute)
_AT = "2026-07-01T12:00:00+00:00"
_LANE = {"lane": 0, "cursor": 61377, "behind": 51002, "returned_ranges": 0, "returned_events": 0}
_LEASE = {"id": 9912, "lane": 0, "kind": "range", "members": 50, "low": 61327, "high": 61377, "attempts": 1}
_LEASE |= {"claimed_by": "w-7", "claimed_at": _AT, "expires_at": "2026-07-01T12:01:00+00:00"}
_KEY = {"key": "c-42", "lane": 3, "offset": 58111, "event_id": "0198c0de-0000-7000-8000-000000000000"}
_KEY |= {"event_type": "order.created", "state": "PENDING", "reason": "retry", "attempts": 1, "failures": 1}
_KEY |= {"available_at": _AT, "error_code": "KeyError", "last_error": "'risk'", "waiting": 318}
_BINDING = {"from_offset": 40001, "types": ["order.*"], "headers": None, "created_at": _AT}


@router.get("/types", **spec("read", {"types": {"order.created": 45}}, reads=True, shape=an_object(types={})))
def types(log: TheLog, access: CanRead, stream: Stream) -> Answer:
    """Return how many events of each type the stream has."""
    return Answer({"types": log.event_types(stream)})


@router.get(
    "/groups/{group}/lanes",
    **spec("read", {"lanes": [_LANE]}, "unknown_group", shape=an_object(lanes=many("Lane")), reads=True),
)
def lanes(log: TheLog, access: CanRead, stream: Stream, group: Group) -> Answer:
    """List the lanes of the group: how far each has got, and what came back to it."""
    return _listed("lanes", log.lanes(stream, group))


@router.get(
    "/groups/{group}/leases",
    **spec("read", {"leases": [_LEASE]}, "unknown_group", shape=an_object(leases=many("OpenLease")), reads=True),
)
def leases(log: TheLog, access: CanRead, stream: Stream, group: Group) -> Answer:
    """List the open leases of the group, the oldest first; 100 at most."""
    return _listed("leases", log.open_leases(stream, group))


@router.get(
    "/groups/{group}/blocked",
    **spec("read", {"keys": [_KEY]}, "unknown_group", shape=an_object(keys=many("BlockedKey")), reads=True),
)
def blocked(log: TheLog, access: CanRead, stream: Stream, group: Group) -> Answer:
    """List keys of an ordered group that are held back; 50 are looked at, and 1,000 deliveries behind each."""
    return _listed("keys", log.blocked_keys(stream, group))


@router.get(
    "/groups/{group}/bindings",
    **spec(
        "read", {"bindings": [_BINDING]}, "unknown_group", shape=an_object(bindings=many("BindingEntry")), reads=True
    ),
)
def bindings(log: TheLog, access: CanRead, stream: Stream, group: Group) -> Answer:
    """List which events the group wants, and wanted, the newest first."""
    return _listed("bindings", log.bindings(stream, group))


def _listed(name: str, found: list[Any]) -> Answer:
    return Answer({name: [asdict(one) for one in found]})

"""Answers: JSON documents of events, deliveries, leases, jobs, groups and whatever else the log returns."""

from __future__ import annotations

import base64
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

import orjson
from fastapi import Request
from starlette.responses import JSONResponse

from penstock.core.access import PAYLOAD, Access
from penstock.core.batch import Event
from penstock.core.codec import JSON
from penstock.core.group import Group
from penstock.core.job import Job
from penstock.core.lease import Settled
from penstock.http.bodies import is_base64
from penstock.log.deliveries import DeliveryRecord
from penstock.log.jobs.schedules import Schedule
from penstock.log.lease import Lease
from penstock.log.selection import Moved

# The fields of documents.
EVENT: Final = "stream offset event_id event_type content_type headers metadata partition_key ordering_key created_at"
CLAIMED: Final = "available_at attempts failures total_attempts last_error"
DELIVERY: Final = (
    "group state attempts failures total_attempts available_at claimed_at claimed_by last_error error_code error_type "
    "fingerprint reason published_at dead_at updated_at"
)
JOB: Final = (
    "id type queue priority status attempts failures max_attempts worker claimed_at heartbeat_at expires_at "
    "available_at created_at finished_at progress message error error_code reason headers offset duplicate"
)


class Answer(JSONResponse):
    """A JSON document."""

    def render(self, content: Any) -> bytes:
        return orjson.dumps(content, default=_plain, option=orjson.OPT_PASSTHROUGH_DATETIME)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _fields(of: Any, names: str) -> dict[str, Any]:
    return {name: getattr(of, name) for name in names.split()}


class Bodies:
    """How the payloads of one answer are shown: as they are, all in base64 if asked for, or left out."""

    def __init__(self, request: Request, access: Access | None) -> None:
        self._access = access
        self._base64 = "payload=base64" in request.headers.get("prefer", "")

    def shown(self, stream: str, payload: bytes, content_type: str) -> dict[str, Any]:
        """Return the payload of an event of a stream, or nothing if it may not be seen. `access` None: it may."""
        if self._access is not None and not self._access.may(PAYLOAD, stream):
            return {}
        return {"payload": self._encoded(bytes(payload), content_type)}

    def _encoded(self, payload: bytes, content_type: str) -> Any:
        if content_type == JSON and not self._base64:
            try:
                if not is_base64(orjson.loads(payload)):
                    return orjson.Fragment(payload)  # as it was appended, to the last digit
            except orjson.JSONDecodeError:
                pass
        return {"base64": base64.b64encode(payload).decode()}


def event_document(event: Event | DeliveryRecord, bodies: Bodies) -> dict[str, Any]:
    """Return an event without its delivery."""
    found = _fields(event, EVENT) | {"available_at": event.available_at}
    return found | bodies.shown(event.stream, event.payload, event.content_type)


def delivery_document(one: DeliveryRecord, bodies: Bodies, *, history: bool = False) -> dict[str, Any]:
    """Return an event as one group sees it."""
    found = event_document(one, bodies) | _fields(one, DELIVERY)
    return found | {"history": [asdict(line) for line in one.history]} if history else found


def lease_document(lease: Lease, bodies: Bodies) -> dict[str, Any]:
    """Return what was claimed, with the token that settles it."""
    events = [event_document(event, bodies) | _fields(event, CLAIMED) for event in lease.events]
    row = lease.row
    known = {"id": lease.id, "token": lease.token, "stream": lease.stream, "group": lease.group}
    times = {"claimed_at": row.claimed_at, "expires_at": lease.expires_at}
    return known | {"claimed_by": lease.claimed_by, **times, "events": events}


def settled_document(settled: Settled, bodies: Bodies) -> dict[str, Any]:
    """Return what a settle did."""
    counts = _fields(settled, "published failed dead released")
    return counts | {"kept": [lease_document(one, bodies) for one in settled.kept]}


def job_document(job: Job, bodies: Bodies, *, claimed: bool = False) -> dict[str, Any]:
    """Return a job; its payload and its result are bodies. Only who claims it gets its token."""
    found = _fields(job, JOB)
    body = bodies.shown(job.stream, job.payload, JSON)
    if body:
        found |= body | {"result": job.result}
    return found | {"token": job.token} if claimed else found


def group_document(group: Group) -> dict[str, Any]:
    """Return a group with its policy and its current binding."""
    settings = group.settings
    return {
        "stream": group.stream,
        "group": group.group_name,
        "ordering": settings.ordering,
        "keyed": group.keyed,
        "lanes": group.lanes,
        "on_dead": group.on_dead,
        "lease_seconds": group.lease_seconds,
        "retry": group.retry.stored,
        "types": settings.types,
        "headers": settings.headers,
        "paused": group.paused,
        "pause_reason": group.pause_reason,
        "created_at": group.created_at,
    }


def schedule_document(one: Schedule, bodies: Bodies, stream: str) -> dict[str, Any]:
    """Return a schedule; the payload of its jobs is a body."""
    found = asdict(one)
    payload = orjson.dumps(found.pop("payload"))
    return found | bodies.shown(stream, payload, JSON)


def moved(found: Moved) -> Answer:
    """Answer how many deliveries an action moved, or would move."""
    return Answer(asdict(found))

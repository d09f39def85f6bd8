"""Append events, and read them without a group."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import ConfigDict, Discriminator, Field, Tag, ValidatorFunctionWrapHandler, WrapValidator

from penstock.core.event import event_id
from penstock.http.answers import Answer, event_document
from penstock.http.bodies import Body, Moment, StrictRoute, is_base64, payload_of
from penstock.http.given import (
    CanAppend,
    CanRead,
    Cursor,
    IdempotencyKey,
    Limit,
    Shown,
    Stream,
    TheLog,
    event_of,
    next_cursor,
)
from penstock.http.shapes import an_object, either, like, many, page, ref
from penstock.http.spec import spec
from penstock.log import ids

router = APIRouter(prefix="/v1/streams/{stream}/events", tags=["events"], route_class=StrictRoute)
ID = "0198f2b4-1111-7abc-8def-0123456789ab"
EVENT = {
    "stream": "orders",
    "offset": 42,
    "event_id": ID,
    "event_type": "order.created",
    "content_type": "application/json",
    "headers": {},
    "metadata": {},
    "partition_key": None,
    "ordering_key": "c-42",
    "created_at": "2026-07-01T12:00:00+00:00",
    "available_at": None,
    "payload": {"id": 7},
}

_LIFE = {
    "group": "fraud",
    "state": "DEAD",
    "attempts": 3,
    "failures": 3,
    "total_attempts": 3,
    "last_error": "no such customer",
    "history": [{"attempt": 1, "outcome": "failed", "at": "2026-07-01T12:00:10+00:00", "error": "no such customer"}],
}
_HELD = {
    "id": 9871,
    "claimed_by": "w-7",
    "claimed_at": "2026-07-01T12:00:00+00:00",
    "members": 50,
    "outcome": "settled",
}
_DONE = {"group": "fraud", "at": "2026-07-01T12:07:31+00:00", "what": "redriven", "by": "ada", "reason": "fixed in 4.2"}
_APPENDED = {"offset": 42, "event_id": ID, "duplicate": False}


class NewEvent(Body):
    """An event. `payload` and `type` are required; the same `event_id` is stored once."""

    model_config = ConfigDict(
        json_schema_extra={
            "required": ["payload", "type"],
            "examples": [{"payload": {"id": 7}, "type": "order.created", "ordering_key": "c-42"}],
        }
    )

    payload: Any = Field(None, description='JSON, or `{"base64": …}` for bytes.')
    type: str | None = None
    ordering_key: str | None = None
    headers: dict[str, str] | None = None
    event_id: str | None = Field(None, description="A uuid or a ULID.")
    available_at: Moment | None = None
    partition_key: str | None = None
    metadata: dict[str, Any] | None = None
    content_type: str | None = None

    def fields(self) -> dict[str, Any]:
        """Return the event as the log takes it."""
        found = self.given()
        found["payload"] = payload_of(self.payload)
        return found


def _as_they_are(sent: Any, check: ValidatorFunctionWrapHandler) -> Any:
    """Let events pass that have nothing but what `append_many` checks, too, and much faster."""
    try:
        plain = not set().union(*sent) - {"payload", "type", "ordering_key"} and all(
            type(one["payload"]) is dict and not is_base64(one["payload"]) and type(one["type"]) is str for one in sent
        )
        plain = plain and not {type(one.get("ordering_key")) for one in sent} - {str, type(None)}
    except (TypeError, KeyError, AttributeError):
        plain = False
    return sent if plain else check(sent)


class NewEvents(Body):
    """Many events, stored in one transaction: all of them or none."""

    events: Annotated[list[NewEvent], WrapValidator(_as_they_are)]


def _kind(sent: Any) -> str:
    return "many" if isinstance(sent, dict) and "events" in sent else "one"


OneOrMany = Annotated[Annotated[NewEvent, Tag("one")] | Annotated[NewEvents, Tag("many")], Discriminator(_kind)]


@router.post(
    "",
    **spec(
        "append",
        _APPENDED,
        *("missing_field", "invalid_payload", "reserved_stream", "naive_datetime", "duplicate_mismatch"),
        "commit_unknown",
        shape=either(like(_APPENDED), like({"event_ids": [ID], "duplicates": 0})),
        status=201,
    ),
)
def append(log: TheLog, access: CanAppend, stream: Stream, body: OneOrMany, key: IdempotencyKey = None) -> Answer:
    """Append one event, or many as `{"events": […]}`: then the answer is `{"event_ids": […], "duplicates": 0}`.

    An `Idempotency-Key` stands for the `event_id` of one event that has none.
    """
    if isinstance(body, NewEvents):
        many = log.append_many(stream, [one.fields() if isinstance(one, NewEvent) else one for one in body.events])
        return Answer({"event_ids": ids.texts(many.event_ids), "duplicates": many.duplicates}, 201)
    fields = body.fields()
    if key is not None and fields.get("event_id") is None:
        fields["event_id"] = event_id(f"{access.name}/{key}")
    appended = log.append(stream, fields.pop("payload"), **fields)
    return Answer(
        {"offset": appended.offset, "event_id": appended.event_id, "duplicate": appended.duplicate}, status_code=201
    )


@router.get("", **spec("read", {"events": [EVENT], "next_cursor": "42"}, shape=page("events", "Event"), reads=True))
def read(log: TheLog, access: CanRead, shown: Shown, stream: Stream, cursor: Cursor = 0, limit: Limit = 100) -> Answer:
    """Read events in offset order, up to the horizon: nothing can still appear between them."""
    found = log.read(stream, after=cursor, limit=limit)
    documents = [event_document(one, shown) for one in found]
    return Answer({"events": documents, "next_cursor": next_cursor(found, limit)})


@router.get("/{event_id}", **spec("read", EVENT, "unknown_event", shape=ref("Event"), reads=True))
def event(log: TheLog, access: CanRead, shown: Shown, stream: Stream, event_id: str) -> Answer:
    """Return one event by its id or its offset."""
    return Answer(event_document(log.event(stream, event_of(event_id)), shown))


@router.get(
    "/{event_id}/life",
    **spec(
        "read",
        {"event": EVENT, "groups": [_LIFE], "leases": [_HELD], "done": [_DONE]},
        "unknown_event",
        shape=an_object(event=ref("Event"), groups=many("GroupLife"), leases=many("HeldBy"), done=many("Done")),
        reads=True,
    ),
)
def life(log: TheLog, access: CanRead, shown: Shown, stream: Stream, event_id: str) -> Answer:
    """Return one event with its state and its history in every group, its leases, and what people did to it."""
    found = log.life(stream, event_of(event_id))
    groups, done = [asdict(one) for one in found.groups], [asdict(one) for one in found.done]
    leases = [asdict(one) for one in found.leases.values()]
    return Answer({"event": event_document(found.event, shown), "groups": groups, "leases": leases, "done": done})

"""The requests of those who append, read and look."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Unpack

import orjson

from penstock.connect.http import decode
from penstock.connect.http.call import Call, given, path_of
from penstock.core import codec
from penstock.core.batch import Event
from penstock.core.event import Appended, AppendedMany, EventFields
from penstock.log.deliveries import DeliveryRecord
from penstock.log.ids import EventIds, uuid7
from penstock.log.runs import RunInfo
from penstock.log.series import Series
from penstock.log.stats import Stats


def encoded(payload: Any) -> Any:
    """Return a payload as it is sent: JSON as the log would encode it, bytes in base64."""
    if isinstance(payload, bytes | bytearray | memoryview):
        return {"base64": base64.b64encode(bytes(payload)).decode()}
    return orjson.Fragment(codec.encode_json(payload))


def event_fields(payload: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event as it is sent."""
    found = {name: value for name, value in fields.items() if value is not None}
    if isinstance(payload, dict) and len(payload) == 1 and "base64" in payload:  # would be taken for bytes
        found.setdefault("content_type", codec.JSON)
        payload = codec.encode_json(payload)
    found["payload"] = encoded(payload)
    return found


# --- append and read ----------------------------------------------------------------------------------------------


def append(stream: str, payload: Any, **fields: Unpack[EventFields]) -> Call[Appended]:
    """Store one event; see `Log.append`. It gets its id here, so that `CommitUnknown` can name it."""
    event_id = fields.get("event_id") or uuid7()
    body = event_fields(payload, {**fields, "event_id": event_id})
    return Call("POST", path_of("streams", stream, "events"), _appended, body, event_id=event_id)


def _appended(document: Any) -> Appended:
    return decode.made(Appended, document)


def append_many(stream: str, events: Iterable[Mapping[str, Any]]) -> Call[AppendedMany]:
    """Store many events in one transaction: all of them or none."""
    listed = list(events)
    body = {"events": _all_at_once(listed) or [event_fields(one.get("payload"), one) for one in listed]}

    def read(document: Any) -> AppendedMany:
        numbers = [int(one.replace("-", ""), 16) for one in document["event_ids"]]
        return AppendedMany(EventIds(numbers), document["duplicates"])

    return Call("POST", path_of("streams", stream, "events"), read, body)


def _all_at_once(events: list[Mapping[str, Any]]) -> orjson.Fragment | None:
    """Encode events that are sent as they are; None if one of them needs a closer look."""
    for one in events:
        payload = one.get("payload")
        if type(payload) is not dict or (len(payload) == 1 and "base64" in payload):
            return None
    try:
        ready = orjson.dumps(events)
    except (TypeError, ValueError, RecursionError):
        return None
    return None if b"null" in ready else orjson.Fragment(ready)


def read(stream: str, *, after: int = 0, limit: int = 1000) -> Call[list[Event]]:
    """Return events in offset order, up to the horizon."""
    params = {"cursor": after, "limit": limit}
    path = path_of("streams", stream, "events")
    return Call("GET", path, lambda found: list(decode.events_of(found["events"], stream)), params=params)


def event(stream: str, event_id: Any) -> Call[Event]:
    """Return one event by its id or its offset."""
    return Call("GET", path_of("streams", stream, "events", event_id), decode.event_of)


def streams() -> Call[list[str]]:
    """Return the names of all streams that the token may read."""
    return Call("GET", path_of("streams"), lambda found: list(found["streams"]))


# --- look ---------------------------------------------------------------------------------------------------------


def deliveries(
    stream: str,
    group: str,
    *,
    state: str | None = None,
    type: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    error: str | None = None,
    fingerprint: str | None = None,
    purged: bool = False,
    after: int = 0,
    limit: int = 1000,
) -> Call[list[DeliveryRecord]]:
    """Return deliveries in offset order; pass the last one's offset as `after` for the next page."""
    times = {name: None if at is None else at.isoformat() for name, at in (("since", since), ("until", until))}
    more = {"fingerprint": fingerprint, "purged": purged or None}
    params = given(state=state, type=type, error=error, cursor=after, limit=limit, **times, **more)
    path = path_of("streams", stream, "groups", group, "deliveries")
    return Call("GET", path, lambda found: [decode.delivery_of(one) for one in found["deliveries"]], params=params)


def delivery(stream: str, group: str, event_id: Any) -> Call[DeliveryRecord]:
    """Return one delivery with its history; the event by its id or its offset."""
    return Call("GET", path_of("streams", stream, "groups", group, "deliveries", event_id), decode.delivery_of)


def series(
    stream: str,
    group: str | None = None,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    step_seconds: int | None = None,
) -> Call[Series]:
    """Return the numbers of a group over time, or without `group` what was appended to a stream."""
    times = {name: None if at is None else at.isoformat() for name, at in (("since", since), ("until", until))}
    of = () if group is None else ("groups", group)
    path = path_of("streams", stream, *of, "series")
    return Call("GET", path, decode.series_of, params=given(step_seconds=step_seconds, **times))


def stats() -> Call[Stats]:
    """Return counts per state, lag and age of all groups that the token may read."""
    return Call("GET", path_of("stats"), decode.stats_of)


def state(stream: str, group: str, key: str) -> Call[dict[str, Any]]:
    """Return the state of one key."""
    return Call("GET", path_of("state", stream, group, key), lambda found: dict(found["state"]))


def runs(*, all: bool = False) -> Call[list[RunInfo]]:
    """Return runs that have not ended; with `all` ended ones, too."""
    params = {"all": all}
    return Call("GET", path_of("runs"), lambda found: [decode.run_of(one) for one in found["runs"]], params=params)

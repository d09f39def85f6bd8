"""From what a caller passes to events that are ready to be stored: checked one by one, quickly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from penstock.core.codec import JSON
from penstock.core.event import NAME, NewEvent, check_name, new_event, parse_event_id
from penstock.core.lanes import bucket_of
from penstock.core.limits import APPEND_BATCH, KEY_BYTES, PAYLOAD_BYTES
from penstock.errors import InvalidInput, MissingField, TooLarge
from penstock.log.ids import uuid7, uuid7_many

FIELDS: Final = frozenset(
    {
        "payload",
        "type",
        "event_id",
        "ordering_key",
        "partition_key",
        "headers",
        "metadata",
        "available_at",
        "content_type",
    }
)
_SIMPLE: Final = frozenset({"payload", "type", "ordering_key"})  # what the short path below can do


def one(stream: str, fields: Mapping[str, Any]) -> tuple[NewEvent, bool]:
    """A checked event, and whether the caller chose its id."""
    given = fields.get("event_id")
    known = {name: value for name, value in fields.items() if name != "event_id"}
    payload = known.pop("payload", None)
    chosen = given is not None
    return new_event(stream, payload, event_id=parse_event_id(given) if chosen else uuid7(), **known), chosen


def emitted(item: Mapping[str, Any]) -> NewEvent:
    """An event to emit: like one of `append_many`, with the stream it goes to."""
    if not isinstance(item, Mapping):
        raise InvalidInput("An emitted event is a mapping with stream, payload and type.")
    fields = {name: value for name, value in item.items() if name != "stream"}
    _check_fields(fields, 0)
    return one(check_name(item.get("stream"), "stream"), fields)[0]


def many(stream: str, items: Iterable[Mapping[str, Any]]) -> tuple[list[NewEvent], bool]:
    """Checked events, and whether all ids are ours (and so new). One bad event refuses them all."""
    check_name(stream, "stream")
    listed = items if isinstance(items, Sequence) else list(items)
    if len(listed) > APPEND_BATCH:
        raise TooLarge(f"append_many takes at most {APPEND_BATCH:,} events at once, not {len(listed):,}.")
    ids = uuid7_many(len(listed))
    ours = True
    events: list[NewEvent] = []
    add = events.append
    names: set[str] = set()
    buckets: dict[str, int] = {}
    for position, (item, event_id) in enumerate(zip(listed, ids, strict=True)):
        if type(item) is dict and item.keys() <= _SIMPLE:
            event = _simple(stream, item, event_id, names, buckets)
            if event is not None:
                add(event)
                continue
        try:
            _check_fields(item, position)
            event, chosen = one(stream, item)
        except InvalidInput as error:
            raise type(error)(f"Event {position}: {error.message}") from error
        ours = ours and not chosen
        add(event if chosen else event._replace(event_id=event_id))  # type: ignore[arg-type]  # bytes of a uuid
    return events, ours


def _simple(
    stream: str, item: dict[str, Any], event_id: bytes, names: set[str], buckets: dict[str, int]
) -> NewEvent | None:
    """The common case without a detour: a JSON payload, a type, perhaps a key. None sends it the long way."""
    kind, payload, key = item.get("type"), item.get("payload"), item.get("ordering_key")
    if kind not in names:
        if type(kind) is not str or not NAME.match(kind):
            return None
        names.add(kind)
    if type(payload) is not dict:
        return None
    try:
        encoded = orjson.dumps(payload)
    except (TypeError, ValueError, RecursionError):
        return None
    if len(encoded) > PAYLOAD_BYTES:
        return None
    bucket = None
    if key is not None:
        bucket = buckets.get(key)
        if bucket is None:
            if type(key) is not str or not 1 <= len(key) <= KEY_BYTES // 4 or "\0" in key or not key.isprintable():
                return None
            bucket = buckets[key] = bucket_of(key)
    return NewEvent(stream, event_id, kind, encoded, JSON, None, None, None, key, bucket, None)  # type: ignore[arg-type]


def _check_fields(item: Any, position: int) -> None:
    if not isinstance(item, Mapping):
        raise InvalidInput(f"an event is a mapping, not {type(item).__name__}.")
    odd = item.keys() - FIELDS
    if odd:
        raise InvalidInput(f"unknown field {sorted(map(str, odd))[0]!r}; known are {', '.join(sorted(FIELDS))}.")
    if "payload" not in item or item["payload"] is None:
        raise MissingField("payload is missing.")

"""Turn a caller's arguments into checked events, ready to be stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from penstock.core import codec
from penstock.core.event import (
    GIVEN_ID,
    EventColumns,
    EventFields,
    NewEvent,
    check_key,
    check_name,
    new_event,
    parse_event_id,
)
from penstock.core.job import check_not_jobs
from penstock.core.lanes import bucket_of
from penstock.core.limits import APPEND_BATCH
from penstock.errors import InvalidInput, MissingField, TooLarge
from penstock.log.ids import uuid7, uuid7_many

FIELDS: Final = frozenset({"payload", *EventFields.__annotations__})
_TEXT: Final = frozenset({str, type(None)})  # no subclass of the user's
_SIMPLE: Final = frozenset({"payload", "type", "ordering_key"})  # fields that can be stored column by column


def one(stream: str, fields: Mapping[str, Any], *, job: bool = False) -> tuple[NewEvent, bool]:
    """Return a checked event, and whether the caller chose its id; `ReservedStream` if only jobs may be there."""
    if not job:
        check_not_jobs(check_name(stream, "stream"))
    given = fields.get("event_id")
    known = {name: value for name, value in fields.items() if name != "event_id"}
    payload = known.pop("payload", None)
    if given is None:
        return new_event(stream, payload, event_id=uuid7(), **known), False
    event_id = parse_event_id(given)
    if isinstance(given, str) and given != str(event_id):  # sent to targets as it was given
        metadata = known.get("metadata") or {}
        if isinstance(metadata, Mapping):
            known["metadata"] = {**metadata, GIVEN_ID: codec.plain(given)}
    return new_event(stream, payload, event_id=event_id, **known), True


def emitted(item: Mapping[str, Any] | NewEvent) -> NewEvent:
    """Return a checked event to emit, from a mapping as for `append_many` plus its stream, or a checked event."""
    if isinstance(item, NewEvent):
        return item
    if not isinstance(item, Mapping):
        raise InvalidInput("An emitted event must be a mapping with stream, payload and type.")
    fields = {name: value for name, value in item.items() if name != "stream"}
    check_fields(fields)
    return one(check_name(item.get("stream"), "stream"), fields)[0]


def many(
    stream: str, items: Iterable[Mapping[str, Any]], *, job: bool = False
) -> tuple[list[NewEvent] | EventColumns, bool]:
    """Return checked events, and whether all ids are ours (and so new). One bad event rejects them all."""
    check_name(stream, "stream")
    if not job:
        check_not_jobs(stream)
    listed = items if isinstance(items, list) else list(items)
    if len(listed) > APPEND_BATCH:
        raise TooLarge(f"append_many takes at most {APPEND_BATCH:,} events at once, not {len(listed):,}.")
    columns = _columns(stream, listed)
    return (columns, True) if columns is not None else one_by_one(stream, listed, job=job)


def one_by_one(stream: str, items: Iterable[Mapping[str, Any]], *, job: bool = False) -> tuple[list[NewEvent], bool]:
    """Check events with any fields one by one; an error names the position of the bad event."""
    events: list[NewEvent] = []
    ours = True
    for position, item in enumerate(items):
        try:
            check_fields(item)
            event, chosen = one(stream, item, job=job)
        except InvalidInput as error:
            raise type(error)(f"Event {position}: {error.message}") from error
        ours = ours and not chosen
        events.append(event)
    return events, ours


def _columns(stream: str, items: list[Any]) -> EventColumns | None:
    """Check the common case column by column; None if the events need checking one by one.

    Payloads are encoded later, while they are stored.
    """
    try:
        if not items or set().union(*items) - _SIMPLE:
            return None
        payloads = [item["payload"] for item in items]
        types = [item["type"] for item in items]
        keys = [item.get("ordering_key") for item in items]
        buckets = {key: bucket_of(key) for key in set(keys) if check_key(key, "ordering_key") is not None}
        for event_type in set(types):
            check_name(event_type, "type")
        if {*map(type, types), *map(type, keys)} - _TEXT:
            return None
    except (TypeError, ValueError, KeyError, AttributeError, InvalidInput):
        return None
    return EventColumns(stream, uuid7_many(len(items)), types, payloads, keys, buckets)


def check_fields(item: Any) -> None:
    """`InvalidInput` if this is not a mapping of the fields of an event; `MissingField` if it has no payload."""
    if not isinstance(item, Mapping):
        raise InvalidInput(f"an event must be a mapping, not {type(item).__name__}.")
    odd = item.keys() - FIELDS
    if odd:
        raise InvalidInput(f"unknown field {sorted(map(str, odd))[0]!r}; known are {', '.join(sorted(FIELDS))}.")
    if "payload" not in item or item["payload"] is None:
        raise MissingField("payload is missing.")

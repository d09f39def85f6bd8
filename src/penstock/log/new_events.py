"""From what a caller passes to events that are ready to be stored: checked one by one, quickly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from penstock.core.event import EventColumns, EventFields, NewEvent, check_key, check_name, new_event, parse_event_id
from penstock.core.lanes import bucket_of
from penstock.core.limits import APPEND_BATCH
from penstock.errors import InvalidInput, MissingField, TooLarge
from penstock.log.ids import uuid7, uuid7_many

FIELDS: Final = frozenset({"payload", *EventFields.__annotations__})
_TEXT: Final = frozenset({str, type(None)})  # and no class of the user's
_SIMPLE: Final = frozenset({"payload", "type", "ordering_key"})  # what goes column by column


def one(stream: str, fields: Mapping[str, Any]) -> tuple[NewEvent, bool]:
    """A checked event, and whether the caller chose its id."""
    given = fields.get("event_id")
    known = {name: value for name, value in fields.items() if name != "event_id"}
    payload = known.pop("payload", None)
    chosen = given is not None
    return new_event(stream, payload, event_id=parse_event_id(given) if chosen else uuid7(), **known), chosen


def emitted(item: Mapping[str, Any] | NewEvent) -> NewEvent:
    """An event to emit: like one of `append_many`, with the stream it goes to; or one that is checked already."""
    if isinstance(item, NewEvent):
        return item
    if not isinstance(item, Mapping):
        raise InvalidInput("An emitted event is a mapping with stream, payload and type.")
    fields = {name: value for name, value in item.items() if name != "stream"}
    _check_fields(fields)
    return one(check_name(item.get("stream"), "stream"), fields)[0]


def many(stream: str, items: Iterable[Mapping[str, Any]]) -> tuple[list[NewEvent] | EventColumns, bool]:
    """Checked events, and whether all ids are ours (and so new). One bad event refuses them all."""
    check_name(stream, "stream")
    listed = items if isinstance(items, list) else list(items)
    if len(listed) > APPEND_BATCH:
        raise TooLarge(f"append_many takes at most {APPEND_BATCH:,} events at once, not {len(listed):,}.")
    columns = _columns(stream, listed)
    return (columns, True) if columns is not None else one_by_one(stream, listed)


def one_by_one(stream: str, items: Iterable[Mapping[str, Any]]) -> tuple[list[NewEvent], bool]:
    """The long way, for events with every field; it also finds the words for what is wrong with one."""
    events: list[NewEvent] = []
    ours = True
    for position, item in enumerate(items):
        try:
            _check_fields(item)
            event, chosen = one(stream, item)
        except InvalidInput as error:
            raise type(error)(f"Event {position}: {error.message}") from error
        ours = ours and not chosen
        events.append(event)
    return events, ours


def _columns(stream: str, items: list[Any]) -> EventColumns | None:
    """The common case, column by column: what can be checked per batch is checked here, payloads are encoded while
    they are stored. None sends it the long way."""
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


def _check_fields(item: Any) -> None:
    if not isinstance(item, Mapping):
        raise InvalidInput(f"an event is a mapping, not {type(item).__name__}.")
    odd = item.keys() - FIELDS
    if odd:
        raise InvalidInput(f"unknown field {sorted(map(str, odd))[0]!r}; known are {', '.join(sorted(FIELDS))}.")
    if "payload" not in item or item["payload"] is None:
        raise MissingField("payload is missing.")

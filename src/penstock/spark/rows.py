"""Turn the rows of a DataFrame into events: one mapping for all ways to write them."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import orjson

from penstock.core.codec import JSON, is_finite
from penstock.core.event import NewEvent
from penstock.errors import InvalidInput, InvalidPayload, MissingField
from penstock.log import new_events

# Columns that are fields of an event. Without `payload`, the other columns together become the payload.
FIELDS: Final = (
    "payload",
    "type",
    "event_type",
    "event_id",
    "ordering_key",
    "partition_key",
    "headers",
    "metadata",
    "available_at",
    "content_type",
)
_AS_THEY_ARE: Final = ("event_id", "partition_key", "available_at", "content_type")


def check_columns(names: Sequence[str], default_type: str | None, key: str | None) -> None:
    """Check that rows with these columns can become events; `InvalidInput` otherwise."""
    if len(set(names)) < len(names):
        raise InvalidInput(f"Two columns have the same name: {', '.join(names)}.")
    if "type" in names and "event_type" in names:
        raise InvalidInput("There are two columns for the type, `type` and `event_type`: drop one.")
    if default_type is None and "type" not in names and "event_type" not in names:
        raise MissingField("There is no column `type` or `event_type`, and no default type.")
    if key is not None and key not in names:
        raise MissingField(f"The ordering key is to come from the column {key!r}, and there is none.")
    if "payload" not in names and all(name in FIELDS for name in names):
        raise MissingField("There is no column `payload`, and no other column to make one of.")


def events_of(batch: Any, stream: str, default_type: str | None, key: str | None) -> list[NewEvent]:
    """Turn the rows of a record batch into checked events; the first bad one raises `InvalidInput`.

    `payload` may be text (JSON unless `content_type` says otherwise), bytes, or anything nested, which becomes JSON;
    without it, all columns that are not fields of an event become one JSON object. `default_type` replaces a missing
    type, `key` names the column with the ordering key.
    """
    names = batch.schema.names
    check_columns(names, default_type, key)
    columns = {name: _values(batch.column(name)) for name in names}
    kinds = columns.get("type") or columns.get("event_type") or [None] * len(batch)
    keys = columns.get(key or "ordering_key")
    payload_of = _payloads(columns)
    common = {name: columns[name] for name in _AS_THEY_ARE if name in columns}
    headers, metadata = columns.get("headers"), columns.get("metadata")
    events: list[NewEvent] = []
    for place in range(len(batch)):
        fields: dict[str, Any] = {name: values[place] for name, values in common.items()}
        fields["payload"], kind = payload_of(place, fields.get("content_type"))
        fields["content_type"] = fields.get("content_type") or kind
        fields["type"] = kinds[place] or default_type
        if keys is not None:
            fields["ordering_key"] = _text(keys[place])
        if headers is not None:
            fields["headers"] = headers[place]
        if metadata is not None:
            fields["metadata"] = _object(metadata[place])
        events.append(new_events.one(stream, fields)[0])
    return events


def to_json(value: Any) -> bytes:
    """Encode any value of a DataFrame as JSON: bytes as base64 and decimals as text, so that nothing is rounded."""
    try:
        text = orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidPayload(f"A row cannot be encoded as JSON: {error}.") from error
    if b"null" in text and not is_finite(value):
        raise InvalidPayload(
            "A row has a NaN or an infinite number, and JSON has neither: replace it, or drop the row."
        )
    return text


def _values(column: Any) -> list[Any]:
    found: list[Any] = column.to_pylist(maps_as_pydicts="strict")
    return found


def _payloads(columns: Mapping[str, list[Any]]) -> Callable[[int, str | None], tuple[bytes, str | None]]:
    """Return a function that makes the payload of a row, and its content type."""
    given = columns.get("payload")
    if given is not None:
        return lambda place, content_type: _payload(given[place], content_type)
    others = {name: values for name, values in columns.items() if name not in FIELDS}
    return lambda place, content_type: (to_json({name: values[place] for name, values in others.items()}), JSON)


def _payload(value: Any, content_type: str | None) -> tuple[bytes, str | None]:
    if value is None:
        raise MissingField("payload is null.")
    if isinstance(value, bytes):
        return value, None
    if not isinstance(value, str):
        return to_json(value), JSON
    if content_type is None or content_type == JSON:
        try:
            orjson.loads(value)
        except ValueError as error:
            raise InvalidPayload(f"A text payload is not JSON and has no other content_type: {error}.") from error
    return value.encode(), JSON


def _object(value: Any) -> Any:
    """Return metadata as an object: it may be a map, a struct, or the text of a JSON object."""
    if not isinstance(value, str):
        return value
    try:
        return orjson.loads(value)
    except ValueError as error:
        raise InvalidInput(f"metadata is not JSON: {error}.") from error


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be encoded as JSON")

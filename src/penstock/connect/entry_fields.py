"""How entries become events if nobody says otherwise: the fields of an event as `append_many` takes them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import orjson

from penstock.connect.valkey import HEADER
from penstock.core import codec
from penstock.core.entry import Entry, Headers
from penstock.core.event import GIVEN_HEADERS, parse_event_id
from penstock.errors import InvalidInput

KEY_ENCODING = "key_encoding"  # in the metadata of an event whose key was no text
NULL = b"null"  # the payload of a message without a value
_BODY = b"payload"
TYPES = (b"event_type", b"type")
_OWN = frozenset({b"event_id", b"event_type", b"content_type", b"key", _BODY})


def of_message(entry: Entry, default_type: str) -> dict[str, Any]:
    """Return the event of a Kafka message: its value unchanged, its key as the ordering key, its headers.

    A message without a value, which deletes a key in a compacted topic, becomes the JSON `null`.
    """
    ours = {name: _text(value) for name, value in entry.headers if name.startswith(codec.OURS)}
    given = next((value for name, value in entry.headers if name.lower() == "content-type"), None)
    body = NULL if entry.value is None else entry.value
    return {
        "payload": body,
        "content_type": ours.get("penstock-content-type") or _content_type(given) or sniffed(body),
        "type": ours.get("penstock-type") or default_type,
        "event_id": valid_id(ours.get("penstock-id")),
        **with_key(entry.key, with_headers(entry.headers)),
    }


def of_fields(entry: Entry, default_type: str) -> dict[str, Any]:
    """Return the event of a Valkey entry.

    What Penstock publishes becomes the same event again. Of any other entry the field `payload` is the payload, and the
    rest are headers; without such a field the payload is a JSON object of all fields.
    """
    found = dict(entry.fields)
    kind = next((found[name] for name in TYPES if name in found), None)
    event: dict[str, Any] = {"type": default_type if kind is None else kind.decode()}
    if _BODY not in found:
        return event | {"payload": as_object(entry.fields)}
    if len(found) < len(entry.fields):
        _check_once(entry.fields)
    ours = b"event_id" in found and b"event_type" in found
    pairs = [
        (name.removeprefix(HEADER).decode(), _text_or_bytes(value))
        for name, value in entry.fields
        if name.startswith(HEADER) or not (name in _OWN or (name == b"type" and kind is value))
    ]
    body, content_type = found[_BODY], found.get(b"content_type")
    event["event_id"] = valid_id(_text(found[b"event_id"])) if ours else None
    if not ours and b"event_id" in found:
        pairs.append(("event_id", _text_or_bytes(found[b"event_id"])))
    event["payload"] = body
    event["content_type"] = sniffed(body) if content_type is None else content_type.decode()
    return event | with_key(found.get(b"key"), with_headers(pairs))


def as_object(fields: Sequence[tuple[bytes, bytes]]) -> dict[str, Any]:
    """Return fields as plain data: text, or `{"base64": …}` where it is none; a list if a name occurs twice."""
    found: dict[str, Any] = {}
    for name, value in fields:
        try:
            shown: Any = value.decode()
        except UnicodeDecodeError:
            shown = {"base64": b64encode(value).decode()}
        key = name.decode()
        if key not in found:
            found[key] = shown
        elif isinstance(found[key], list):
            found[key].append(shown)
        else:
            found[key] = [found[key], shown]
    return found


def with_headers(pairs: Headers) -> dict[str, Any]:
    """Return headers as the fields of an event: those that are no mapping of text to text whole in the metadata."""
    kept = [(name, value) for name, value in pairs if name[:9].lower() != codec.OURS]
    if not kept:
        return {}
    headers = {name: value for name, value in kept if isinstance(value, str)}
    if len(headers) == len(kept):
        return {"headers": headers}
    return {"headers": headers, "metadata": {GIVEN_HEADERS: codec.encode_pairs(kept)}}


def with_key(key: bytes | None, event: dict[str, Any]) -> dict[str, Any]:
    """Add the ordering key; one that is no text is stored in base64, so that order by key holds for it, too."""
    if not key:
        return event
    text = _text(key)
    if text is not None and "\0" not in text:
        return event | {"ordering_key": text}
    metadata = {**event.get("metadata", {}), KEY_ENCODING: "base64"}
    return event | {"ordering_key": b64encode(key).decode(), "metadata": metadata}


def sniffed(body: bytes) -> str:
    """Return the content type of a body that came without one: JSON if it is."""
    try:
        orjson.loads(body)
    except ValueError:
        return codec.BINARY
    return codec.JSON


def _content_type(given: str | bytes | None) -> str | None:
    """Return what somebody else calls the content type, if it can be one; as a header it is kept anyway."""
    fits = isinstance(given, str) and 1 <= len(given) <= 128 and given.isascii() and given.isprintable()
    return str(given) if fits else None


def _check_once(fields: Sequence[tuple[bytes, bytes]]) -> None:
    """`InvalidInput` if a field that makes the event stands twice: one of them would be lost."""
    names = [name for name, _ in fields if name in _OWN]
    if len({*names}) < len(names):
        raise InvalidInput("a field that makes the event occurs twice.")


def valid_id(given: str | None) -> str | None:
    """Return an event id as it was given, if it is one."""
    try:
        parse_event_id(given)
    except InvalidInput:
        return None
    return given


def text_or_bytes(value: bytes | str | None) -> str | bytes:
    """Return text where bytes are text."""
    return _text_or_bytes(value.encode() if isinstance(value, str) else value or b"")


def _text_or_bytes(value: bytes) -> str | bytes:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return value
    return value if "\0" in text else text


def _text(value: str | bytes) -> str | None:
    if isinstance(value, str):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None

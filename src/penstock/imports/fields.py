"""How the texts of a source become the fields of an event."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson

from penstock.core.codec import BINARY, JSON
from penstock.core.event import GIVEN_ID, event_id, parse_event_id
from penstock.core.imported import FROM
from penstock.core.limits import PAYLOAD_BYTES
from penstock.errors import InvalidInput

TEXT = "text/plain"


def identity(source: str, given: str | None, position: str) -> tuple[Any, dict[str, Any]]:
    """Return the id of an event, and what its metadata say of it: a stable one is made where none can be kept."""
    if given is None:
        return event_id(f"{source} {position}"), {}
    try:
        parse_event_id(given)
    except InvalidInput:
        return event_id(f"{source} id {given!r}"), {GIVEN_ID: given}  # quoted: any text has a name
    return given, {}


def body(payload: str | bytes | None, content_type: str | None = None) -> tuple[bytes | None, str]:
    """Return a payload byte for byte, and its content type: JSON if it is, else text or bytes."""
    if payload is None:
        return None, JSON
    raw = payload.encode("utf-8", "surrogateescape") if isinstance(payload, str) else bytes(payload)
    if content_type:
        return raw, content_type
    try:
        orjson.loads(raw)
    except orjson.JSONDecodeError:
        return raw, TEXT if isinstance(payload, str) else BINARY
    return raw, JSON


def json_object(text: str | None, what: str) -> tuple[dict[str, Any], str | None]:
    """Return a JSON object, or why it is none."""
    if text is None or text == "":
        return {}, None
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return {}, f"{what} are not JSON: {error}."
    if found is None:
        return {}, None
    return (found, None) if isinstance(found, dict) else ({}, f"{what} are not a JSON object.")


def oversize(size: int | None) -> str | None:
    """Return why a payload of so many bytes cannot be stored, if it cannot."""
    if size is None or size <= PAYLOAD_BYTES:
        return None
    return f"The payload has {size:,} bytes; the limit is {PAYLOAD_BYTES:,}."


def shown(value: Any, most: int | None = None) -> str:
    """Return anything as a text that can be stored; NUL and half a character, which JSON can name, are escaped."""
    return str(value)[:most].replace("\x00", "\\0").encode("utf-8", "backslashreplace").decode()


def moment(seconds: float) -> datetime | None:
    """Return a time in seconds as one; None if no calendar has it."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def origin(created_at: datetime | str | None, **more: Any) -> dict[str, Any]:
    """Return what an event's metadata keep of its life in the source."""
    at = created_at.isoformat() if isinstance(created_at, datetime) else created_at
    known = {name: value for name, value in {"created_at": at, **more}.items() if value is not None}
    return {FROM: known} if known else {}

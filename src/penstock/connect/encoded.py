"""An event as one JSON object, for targets whose messages are text."""

from __future__ import annotations

import base64
from typing import Any

import orjson

from penstock.core.codec import JSON
from penstock.declare.publisher import Message


def as_json(message: Message, *, one_line: bool = False) -> orjson.Fragment | None:
    """Return the payload to embed it byte by byte, if it is JSON (in one line, if it must be); None otherwise."""
    payload = message.payload
    kind = message.content_type
    if kind != JSON and not kind.partition(";")[0].strip().endswith(("/json", "+json")):
        return None
    try:
        orjson.loads(payload)
    except ValueError:
        return None
    return None if one_line and (b"\n" in payload or b"\r" in payload) else orjson.Fragment(payload)


def as_text(message: Message) -> str | None:
    """Return the payload as text, if its content type says that it is and it is UTF-8; None otherwise."""
    kind = message.content_type.partition(";")[0].strip().lower()
    if not kind.startswith("text/") and not kind.endswith(("/xml", "+xml")):
        return None
    try:
        return message.payload.decode()
    except UnicodeDecodeError:
        return None


def text_headers(message: Message) -> dict[str, Any]:
    """Return the headers; a name that occurs twice has a list, bytes that are no text are in base64."""
    found: dict[str, Any] = {}
    for name, value in message.headers:
        shown = value if isinstance(value, str) else _text(value)
        if name not in found:
            found[name] = shown
        elif isinstance(found[name], list):
            found[name].append(shown)
        else:
            found[name] = [found[name], shown]
    return found


def base64_text(value: bytes) -> str:
    """Return bytes in base64."""
    return base64.b64encode(value).decode()


def _text(value: bytes) -> Any:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64_text(value)}

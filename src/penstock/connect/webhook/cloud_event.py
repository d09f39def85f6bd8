"""CloudEvents 1.0 over HTTP: the whole event as JSON (structured), or its attributes as headers (binary)."""

from __future__ import annotations

import re
from datetime import UTC
from typing import Any
from urllib.parse import quote

import orjson

from penstock.connect.encoded import as_json, as_text, base64_text
from penstock.declare.publisher import Message

# What belongs to the connection or to us, and cannot be set by a producer.
_RESERVED = frozenset(
    [
        "connection",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "webhook-id",
        "webhook-timestamp",
        "webhook-signature",
    ]
)
_TRACE = ("traceparent", "tracestate")  # the extension for distributed tracing
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")  # a tab may be in a value
_PRINTABLE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')

Pair = tuple[bytes, bytes]
_STRUCTURED: list[Pair] = [(b"content-type", b"application/cloudevents+json; charset=utf-8")]


def attributes(message: Message, source: str) -> dict[str, str]:
    """Return the attributes of an event."""
    found = {
        "specversion": "1.0",
        "id": message.id,
        "source": source,
        "type": message.type,
        "time": message.created_at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
    }
    if message.key is not None:
        found["partitionkey"] = message.key
    for name, value in message.headers:
        if name.lower() in _TRACE and isinstance(value, str):
            found[name.lower()] = value
    return found


def structured(message: Message, source: str) -> tuple[list[Pair], bytes]:
    """Return the headers and the body of an event as one JSON object."""
    found: dict[str, Any] = attributes(message, source)
    found["datacontenttype"] = message.content_type
    data: Any = as_json(message)
    if data is None and (data := as_text(message)) is None:
        found["data_base64"] = base64_text(message.payload)
    else:
        found["data"] = data
    return _STRUCTURED[:], orjson.dumps(found)


def binary(message: Message, source: str) -> tuple[list[Pair], bytes]:
    """Return the attributes of an event as headers, and its payload as it is; `ValueError` as in `own_headers`."""
    if message.content_type != message.content_type.strip():
        raise ValueError("the content type has spaces around it, which HTTP would take off")
    found = attributes(message, source)
    headers = [
        (f"ce-{name}".encode(), quote(value, safe=_PRINTABLE).encode())
        for name, value in found.items()
        if name not in _TRACE
    ]
    return [(b"content-type", message.content_type.encode()), *headers], message.payload


def is_free(name: str) -> bool:
    """Whether a header of this name can be sent over HTTP, and is not set by us."""
    low = name.lower()
    return _NAME.fullmatch(name) is not None and low not in _RESERVED and not low.startswith("ce-")


def own_headers(message: Message) -> list[Pair]:
    """Return the headers of the message; `ValueError` if one cannot be sent over HTTP."""
    pairs = []
    for name, value in message.headers:
        low = name.lower()
        if low in _RESERVED or low.startswith("ce-"):
            raise ValueError(f"the header {name!r:.80} belongs to the connection, the signature or CloudEvents")
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r:.80} cannot be the name of an HTTP header")
        raw = value.encode() if isinstance(value, str) else value
        if raw != raw.strip() or _CONTROL.search(raw):
            raise ValueError(f"the value of {name!r:.80} cannot be sent as an HTTP header")
        pairs.append((name.encode(), raw))
    return pairs

"""Encoding of payloads, headers and errors, and the digest of a settle."""

from __future__ import annotations

import hashlib
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Final

import orjson

from penstock.core.limits import ERROR_BYTES, HEADERS_BYTES, METADATA_BYTES, PAYLOAD_BYTES
from penstock.errors import InvalidInput, InvalidPayload, MissingField, TooLarge

_CODE: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}\Z")
JSON: Final = "application/json"
BINARY: Final = "application/octet-stream"
OURS: Final = "penstock-"  # begins the names of headers that Penstock itself sends


def plain(text: str) -> str:
    """Return a plain `str`: the text may be an enum, or of a class that only the handler's process can import."""
    return text if type(text) is str else str.__str__(text)


def encode_payload(payload: Any, content_type: str | None) -> tuple[bytes, str]:
    """Return the payload's bytes and content type: bytes stay as they are, everything else becomes JSON."""
    if payload is None:
        raise MissingField("payload is missing: None is not a payload (use {} or b'' if you mean empty).")
    if isinstance(payload, bytes | bytearray | memoryview):
        encoded, kind = bytes(payload), plain(content_type or BINARY)
    else:
        encoded, kind = encode_json(payload), plain(content_type or JSON)
    check_size(encoded)
    return encoded, kind


def check_size(encoded: bytes) -> None:
    """Raise `TooLarge` if a payload exceeds its limit."""
    if len(encoded) > PAYLOAD_BYTES:
        raise TooLarge(f"The payload has {len(encoded):,} bytes; the limit is {PAYLOAD_BYTES:,}.")


def encode_json(payload: Any) -> bytes:
    """Encode a payload as JSON; raise `InvalidPayload`, `MissingField` or `TooLarge`."""
    try:
        encoded = orjson.dumps(payload)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidPayload(f"The payload cannot be encoded as JSON: {error}.") from error
    if b"null" in encoded and not is_finite(payload):
        raise InvalidPayload("The payload contains NaN or an infinite number, which JSON cannot represent.")
    if len(encoded) > PAYLOAD_BYTES or payload is None:
        check_size(encoded)
        raise MissingField("payload is missing.")
    return encoded


def is_finite(value: Any) -> bool:
    """Return whether plain data is free of NaN and infinities, which orjson silently encodes as null.

    This takes longer than the encoding itself: call it only if the encoded text contains a null.
    """
    waiting = [value]
    while waiting:
        one = waiting.pop()
        kind = type(one)
        if kind is float:
            if one - one != 0:
                return False
        elif kind is str or kind is int or one is None or kind is bool:
            continue
        elif isinstance(one, Mapping):
            waiting.extend(one.values())
            waiting.extend(key for key in one if type(key) is not str)
        elif isinstance(one, list | tuple):
            waiting.extend(one)
        elif isinstance(one, Enum):
            waiting.append(one.value)
        elif is_dataclass(one):
            waiting.extend(getattr(one, field.name, None) for field in fields(one))
    return True


def encode_headers(headers: Mapping[str, str] | None) -> str | None:
    """Encode headers as JSON text; None if there are none."""
    if not headers:
        return None
    if not isinstance(headers, Mapping):
        raise InvalidInput("headers must be a mapping of text to text.")
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidInput(f"headers must map text to text; {name!r} does not.")
        if name[:9].lower() == OURS:
            raise InvalidInput(f"headers that begin with {OURS} are set by Penstock; {name!r:.80} cannot be.")
    return _small_json({plain(name): plain(value) for name, value in headers.items()}, "headers", HEADERS_BYTES)


def encode_metadata(metadata: Mapping[str, Any] | None) -> str | None:
    """Encode metadata as JSON text; None if there is none."""
    if not metadata:
        return None
    if not isinstance(metadata, Mapping) or not all(isinstance(name, str) for name in metadata):
        raise InvalidInput("metadata must be a mapping with text keys.")
    return _small_json(dict(metadata), "metadata", METADATA_BYTES)


def _small_json(value: Any, what: str, limit: int) -> str:
    try:
        encoded = orjson.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{what} cannot be encoded as JSON: {error}.") from error
    if b"null" in encoded and not is_finite(value):
        raise InvalidInput(f"{what} contains NaN or an infinite number, which JSON cannot represent.")
    if len(encoded) > limit:
        raise TooLarge(f"{what} has {len(encoded):,} bytes; the limit is {limit:,}.")
    if b"\\u0000" in encoded:
        raise InvalidInput(f"{what} contains a NUL character, which databases do not store.")
    return encoded.decode()


def decode_object(text: str | None) -> dict[str, Any]:
    """Decode stored headers or metadata.

    Another client may have written JSON that Python cannot decode (too deep, a number too large): return it as text.
    """
    if not text:
        return {}
    try:
        found = orjson.loads(text)
    except ValueError:
        return {"unreadable": text}
    return found if isinstance(found, dict) else {"unreadable": text}


def decode_headers(text: str | None) -> dict[str, str]:
    """Decode stored headers as text to text, whatever another client wrote."""
    found = decode_object(text)
    if all(type(value) is str for value in found.values()):
        return found
    return {name: value if type(value) is str else orjson.dumps(value).decode() for name, value in found.items()}


def encode_pairs(pairs: Iterable[tuple[str, str | bytes]]) -> list[Any]:
    """Return headers as plain data in which a name may occur twice and a value be bytes; `decode_pairs` reads it."""
    return [[name, value if isinstance(value, str) else {"base64": b64encode(value).decode()}] for name, value in pairs]


def decode_pairs(pairs: Any) -> list[tuple[str, str | bytes]]:
    """Return what `encode_pairs` was given."""
    return [(name, value if isinstance(value, str) else b64decode(value["base64"])) for name, value in pairs]


def error_text(error: Any) -> str:
    """Return the text of an error in a form that any database can store, cut at the limit."""
    try:
        text = plain(error if isinstance(error, str) else str(error)) or type(error).__name__
    except BaseException:  # a user's class may raise anything
        text = "an exception whose text cannot be made"
    if text.isascii() and len(text) <= ERROR_BYTES and "\x00" not in text:  # the common case
        return text
    cleaned = text.replace("\x00", "\\0").encode("utf-8", "backslashreplace")
    return cleaned[:ERROR_BYTES].decode("utf-8", "ignore")


def error_code(error: Any) -> str:
    """Return a short stable code for an error: its own code, else its class name."""
    try:
        code = getattr(error, "code", None)
    except BaseException:  # a user's property may raise anything
        code = None
    if isinstance(code, str) and _CODE.match(code):
        return plain(code)
    return type(error).__name__[:128] if isinstance(error, BaseException) else "error"


def digest(value: Any) -> bytes:
    """Hash plain data, independent of the order of mappings."""
    options = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS | orjson.OPT_NAIVE_UTC
    try:
        text = orjson.dumps(value, default=_plain, option=options)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"A value cannot be stored: {error}.") from error
    return hashlib.sha256(text).digest()


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return {"bytes": bytes(value).hex()}
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    return repr(value)

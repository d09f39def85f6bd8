"""How payloads, headers and errors become bytes and text, and what a settle's digest is made of."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

import orjson

from penstock.core.limits import ERROR_BYTES, HEADERS_BYTES, METADATA_BYTES, PAYLOAD_BYTES
from penstock.errors import InvalidInput, InvalidPayload, MissingField, TooLarge

_CODE: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}\Z")
JSON: Final = "application/json"
BINARY: Final = "application/octet-stream"


def encode_payload(payload: Any, content_type: str | None) -> tuple[bytes, str]:
    """Payload bytes and content type: bytes stay as they are, everything else becomes JSON."""
    if payload is None:
        raise MissingField("payload is missing: None is not a payload (use {} or b'' if you mean empty).")
    if isinstance(payload, bytes | bytearray | memoryview):
        encoded, kind = bytes(payload), content_type or BINARY
    else:
        encoded, kind = encode_json(payload), content_type or JSON
    check_size(encoded)
    return encoded, kind


def check_size(encoded: bytes) -> None:
    """`TooLarge` beyond the limit of a payload."""
    if len(encoded) > PAYLOAD_BYTES:
        raise TooLarge(f"The payload has {len(encoded):,} bytes; the limit is {PAYLOAD_BYTES:,}.")


def encode_json(payload: Any) -> bytes:
    """A payload as JSON, or `InvalidPayload`, `MissingField`, `TooLarge`."""
    try:
        encoded = orjson.dumps(payload)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidPayload(f"The payload cannot be encoded as JSON: {error}.") from error
    if len(encoded) > PAYLOAD_BYTES or payload is None:
        check_size(encoded)
        raise MissingField("payload is missing.")
    return encoded


def encode_headers(headers: Mapping[str, str] | None) -> str | None:
    """Headers as JSON text; None when there are none."""
    if not headers:
        return None
    if not isinstance(headers, Mapping):
        raise InvalidInput("headers must be a mapping of text to text.")
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidInput(f"headers must map text to text; {name!r} does not.")
    return _small_json(dict(headers), "headers", HEADERS_BYTES)


def encode_metadata(metadata: Mapping[str, Any] | None) -> str | None:
    """Metadata as JSON text; None when there is none."""
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
    if len(encoded) > limit:
        raise TooLarge(f"{what} has {len(encoded):,} bytes; the limit is {limit:,}.")
    if b"\\u0000" in encoded:
        raise InvalidInput(f"{what} contains a NUL character, which databases do not store.")
    return encoded.decode()


def error_text(error: Any) -> str:
    """The text of an error as it is stored: printable by any database, and short."""
    text = str(error) or type(error).__name__
    if text.isascii() and len(text) <= ERROR_BYTES and "\x00" not in text:  # as nearly always
        return text
    cleaned = text.replace("\x00", "\\0").encode("utf-8", "backslashreplace")
    return cleaned[:ERROR_BYTES].decode("utf-8", "ignore")


def error_code(error: Any) -> str:
    """A short stable word for an error: its own code, else its class name."""
    try:
        code = getattr(error, "code", None)
    except Exception:  # a property of the user's
        code = None
    if isinstance(code, str) and _CODE.match(code):
        return code
    return type(error).__name__[:128] if isinstance(error, BaseException) else "error"


def digest(value: Any) -> bytes:
    """A digest of plain data that does not depend on the order of mappings."""
    text = orjson.dumps(
        value, default=_plain, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS | orjson.OPT_NAIVE_UTC
    )
    return hashlib.sha256(text).digest()


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return {"bytes": bytes(value).hex()}
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    return repr(value)

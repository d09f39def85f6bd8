"""Entries of other systems' streams: what a mapping gets, and what is rejected."""

from __future__ import annotations

import hashlib
import uuid
from base64 import b64encode
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import orjson

from penstock.core import codec
from penstock.core.event import NewEvent, new_event
from penstock.core.limits import REJECTED_BYTES
from penstock.errors import PenstockError

Headers = Sequence[tuple[str, str | bytes]]

NAMESPACE: Final = uuid.UUID("0d9b5a0e-6c53-5b7e-8f0a-52a3a4c3b6d1")
REJECTED: Final = ".rejected"  # ends the name of the stream for what cannot become an event
REJECTED_TYPE: Final = "ingest.rejected"
_AROUND: Final = 12  # bytes for quotes, commas and padding around a value


class Entry(NamedTuple):
    """One entry of a source, as a function given as `map` gets it; nothing in it can be changed.

    `fields` are the pairs of a Valkey entry, in their order; a name may occur twice. `value` is the value of a Kafka
    message, or the field `payload`; None if there is none. Header values are text, or bytes that are no text.
    """

    position: str  # within the source: an entry id, or partition:offset
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    fields: Sequence[tuple[bytes, bytes]] = ()
    timestamp: datetime | None = None
    error: Exception | None = None  # why it cannot be read
    event_id: uuid.UUID | None = None  # of its event, if its position has a number: see `first_id_of`

    def field(self, name: str) -> bytes | None:
        """Return the last value of a field."""
        wanted = name.encode()
        return next((value for one, value in reversed(self.fields) if one == wanted), None)

    def text(self, name: str) -> str | None:
        """Return the last value of a field as text; UnicodeDecodeError if it is none."""
        value = self.field(name)
        return None if value is None else value.decode()

    def json(self) -> Any:
        """Decode the value as JSON."""
        return orjson.loads(self.value if self.value is not None else b"null")


def event_id_of(source: str, entry: Entry) -> uuid.UUID:
    """Return the id of an entry's event: the same at every delivery."""
    return entry.event_id or uuid.uuid5(NAMESPACE, f"{source}\n{entry.position}")


def first_id_of(source: str, part: str) -> int:
    """Return the id of the entry with the number 0 in a part of a source, as a number; that of entry n is n higher.

    So ids are made without a hash for each, and those of neighbours are neighbours in the database's index. It is a
    uuid of version 8; numbers are below 2^62.
    """
    digest = hashlib.sha256(f"{source}\n{part}".encode()).digest()
    high = int.from_bytes(digest[:8], "big") & ~0xF000 | 0x8000
    return high << 64 | 1 << 63


def rejected_event(into: str, source: str, entry: Entry, error: BaseException) -> NewEvent:
    """Return the event that tells why an entry was rejected, with as much of the entry as fits."""
    room = _Room(REJECTED_BYTES)
    document: dict[str, Any] = {
        "source": source,
        "position": entry.position,
        "code": codec.error_code(error),
        "reason": codec.error_text(error.message if isinstance(error, PenstockError) else error),
        "key": room.put(entry.key),
        "headers": room.pairs((name.encode("utf-8", "replace"), _bytes(value)) for name, value in entry.headers),
        "fields": room.pairs(entry.fields),
        "value": None if entry.fields else room.put(entry.value),
    }
    document["cut"] = room.left < 0
    payload = orjson.dumps(document)
    # From all that it says: the same rejection is stored once, and another one of the same entry is another event.
    digest = hashlib.sha256(payload).hexdigest()
    event_id = uuid.uuid5(NAMESPACE, f"{source}\n{entry.position}\n{digest}")
    return new_event(into + REJECTED, payload, type=REJECTED_TYPE, event_id=event_id, content_type=codec.JSON)


class _Room:
    """So many bytes, for values in base64."""

    def __init__(self, left: int) -> None:
        self.left = left

    def put(self, value: bytes | None) -> str | None:
        """Return as much of a value as there is room for."""
        if value is None:
            return None
        kept = value[: max(0, self.left)]
        self.left -= len(value) + _AROUND
        return b64encode(kept).decode()

    def pairs(self, pairs: Iterable[tuple[bytes, bytes]]) -> list[list[str | None]]:
        """Return pairs until there is no room left."""
        found = []
        for name, value in pairs:
            if self.left < 0:
                break
            found.append([self.put(name), self.put(value)])
        return found


def _bytes(value: str | bytes) -> bytes:
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value

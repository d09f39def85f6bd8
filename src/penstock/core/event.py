"""New events and the checks of their fields."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypedDict

from penstock.core import codec
from penstock.core.lanes import bucket_of
from penstock.core.limits import KEY_BYTES
from penstock.errors import DuplicateMismatch, InvalidInput, InvalidName, MissingField, NaiveDatetime, TooLarge

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}\Z")
_NAMESPACE: Final = uuid.UUID("6f1b0c52-8f0e-5d0a-9c39-3d2f5b6a7e10")
_CROCKFORD: Final = {letter: value for value, letter in enumerate("0123456789ABCDEFGHJKMNPQRSTVWXYZ")}
_ULID_LENGTH: Final = 26
GIVEN_ID: Final = "penstock-id"  # in the metadata: the id as it was given, if its text is not that of the uuid
ERASED: Final = "penstock-erased"  # in the metadata of an event whose payload was erased: when
GIVEN_HEADERS: Final = "penstock-headers"  # in the metadata: headers that are no mapping of text to text


def check_name(name: Any, what: str) -> str:
    """Return the name; raise `MissingField` or `InvalidName` if it is not valid."""
    if type(name) is str and _is_name(name):
        return name
    if name is None or name == "":
        raise MissingField(f"{what} is missing.")
    if not isinstance(name, str) or not NAME.match(name):
        raise InvalidName(f"{what} {str(name)[:140]!r} is not a valid name.")
    return codec.plain(name)


@lru_cache(maxsize=4_096)
def _is_name(text: str) -> bool:
    """Return whether text is a name; the same few are asked for again and again."""
    return NAME.match(text) is not None


def check_key(key: Any, what: str) -> str | None:
    """Return a key: any text of at most 512 bytes without NUL; None stays None."""
    if key is None:
        return None
    if not isinstance(key, str) or not key:
        raise InvalidInput(f"{what} must be text, and not empty.")
    try:
        encoded = key.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{what} is not valid text: {error}.") from error
    if len(encoded) > KEY_BYTES:
        raise TooLarge(f"{what} has {len(encoded):,} bytes; the limit is {KEY_BYTES}.")
    if b"\0" in encoded:
        raise InvalidInput(f"{what} contains a NUL character, which databases do not store.")
    return codec.plain(key)


def check_text(text: Any, what: str) -> str | None:
    """Return text that every database can store: no NUL, no lone surrogates; None stays None."""
    if text is None:
        return None
    if not isinstance(text, str):
        raise InvalidInput(f"{what} must be text, not {type(text).__name__}.")
    if "\0" in text:
        raise InvalidInput(f"{what} contains a NUL character, which databases do not store.")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidInput(f"{what} is not valid text: {error}.") from error
    return text


def check_offset(value: Any, what: str) -> int:
    """Return a valid offset."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise InvalidInput(f"{what} must be a whole number between 0 and 2^63 - 1, not {str(value)[:60]}.")
    return value


def check_time(value: Any, what: str) -> datetime | None:
    """Return an aware datetime in UTC; None stays None."""
    if value is None:
        return None
    if not isinstance(value, datetime):
        raise InvalidInput(f"{what} must be a datetime.")
    if value.tzinfo is None or value.utcoffset() is None:
        raise NaiveDatetime(f"{what} {value.isoformat()} has no time zone.")
    try:
        return value.astimezone(UTC)
    except OverflowError as error:
        raise InvalidInput(f"{what} {value.isoformat()} is not between the years 1 and 9999 in UTC.") from error


def event_id(text: str) -> uuid.UUID:
    """Derive a stable event id from text, for appends that must be repeatable.

    >>> event_id("order-7") == event_id("order-7")
    True
    """
    if check_text(text, "text") is None:
        raise MissingField("event_id needs a text.")
    return uuid.uuid5(_NAMESPACE, text)


def parse_event_id(value: Any) -> uuid.UUID:
    """Accept a uuid, the text of one, or a ULID (its 128 bits)."""
    if isinstance(value, uuid.UUID):
        return value if type(value) is uuid.UUID else uuid.UUID(int=value.int)  # drivers have their own classes
    if isinstance(value, str):
        try:
            return _from_ulid(value) if len(value) == _ULID_LENGTH else uuid.UUID(value)
        except (ValueError, KeyError):
            pass
    raise InvalidInput(
        f"event_id {str(value)[:60]!r} is neither a uuid nor a ULID; penstock.event_id(text) makes one from text."
    )


def _from_ulid(text: str) -> uuid.UUID:
    number = 0
    for letter in text.upper():
        number = number * 32 + _CROCKFORD[letter]
    return uuid.UUID(int=number)


class EventFields(TypedDict, total=False):
    """The fields of an event besides its stream and payload. Only `type` is required."""

    type: str | None  # what happened, such as order.created
    ordering_key: str | None  # events with the same key are handled in order and share state
    headers: Mapping[str, str] | None  # text pairs for the consumer at the target
    event_id: Any  # a uuid, its text or a ULID; the same id is stored once
    available_at: datetime | None  # not delivered before this time
    partition_key: str | None  # routing at the target
    metadata: Mapping[str, Any] | None  # internal notes, never sent to a target
    content_type: str | None  # of a payload in bytes


class NewEvent(NamedTuple):
    """An event that passed every check and is ready to be stored."""

    stream: str
    event_id: uuid.UUID
    event_type: str
    payload: bytes
    content_type: str
    headers: str | None
    metadata: str | None
    partition_key: str | None
    ordering_key: str | None
    bucket: int | None
    available_at: datetime | None


class StoredEvent(NamedTuple):
    """An event that was stored before, to be put back as it was."""

    event: NewEvent
    offset: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class EventColumns:
    """Many new events of the common kind, column by column: one content type, no headers, due at once, new ids."""

    stream: str
    event_ids: Sequence[int]  # as numbers
    event_types: Sequence[str]
    payloads: Sequence[Any]
    ordering_keys: Sequence[str | None]
    buckets: Mapping[str, int]
    content_type: str = codec.JSON
    encoded: bool = False  # payloads are bytes already

    def __len__(self) -> int:
        return len(self.event_ids)

    def chunks(self, size: int = 1_000) -> Iterator[list[tuple[bytes, str, bytes, str | None]]]:
        """Yield (id, type, payload, key) in chunks: allocating memory for all at once costs more than the encoding."""
        for start in range(0, len(self), size):
            part = slice(start, start + size)
            payloads = self.payloads[part]
            if not self.encoded:
                payloads = [codec.encode_json(payload) for payload in payloads]
            ids = [number.to_bytes(16, "big") for number in self.event_ids[part]]
            yield list(zip(ids, self.event_types[part], payloads, self.ordering_keys[part], strict=True))


def new_event(
    stream: str,
    payload: Any,
    *,
    type: str | None = None,
    event_id: uuid.UUID,
    content_type: str | None = None,
    headers: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    partition_key: str | None = None,
    ordering_key: str | None = None,
    available_at: datetime | None = None,
) -> NewEvent:
    """Check every field of an event; raise a coded error that names the first bad one."""
    body, kind = codec.encode_payload(payload, content_type)
    if content_type is not None:
        _check_content_type(content_type)
    key = check_key(ordering_key, "ordering_key")
    return NewEvent(
        check_name(stream, "stream"),
        event_id,
        check_name(type, "type"),
        body,
        kind,
        codec.encode_headers(headers),
        codec.encode_metadata(metadata),
        check_key(partition_key, "partition_key"),
        key,
        None if key is None else bucket_of(key),
        check_time(available_at, "available_at"),
    )


def check_same(event_id: uuid.UUID | str, same: bool, event: NewEvent) -> None:
    """Raise `DuplicateMismatch` if a stored event has the same id but another stream, type or payload.

    The message reveals nothing about the stored event.
    """
    if not same:
        raise DuplicateMismatch(f"Event id {event_id} is already taken by another event.", event_id=event.event_id)


def _check_content_type(content_type: Any) -> None:
    if not isinstance(content_type, str) or not content_type.isascii() or not 1 <= len(content_type) <= 128:
        raise InvalidInput("content_type must be ASCII text of at most 128 characters.")
    if not content_type.isprintable():
        raise InvalidInput("content_type must be printable text.")


@dataclass(frozen=True, slots=True)
class Appended:
    """The result of `append`; `duplicate` is true if the same event was stored before."""

    offset: int
    event_id: uuid.UUID
    duplicate: bool


@dataclass(frozen=True, slots=True)
class AppendedMany:
    """The result of `append_many`, ids in the order given."""

    event_ids: Sequence[uuid.UUID]
    duplicates: int

"""What an event is: the fields of a new one, checked, and the lazy view handlers get of a stored one."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, overload

import orjson

from penstock.core import codec
from penstock.core.delivery import State
from penstock.core.lanes import bucket_of
from penstock.core.limits import KEY_BYTES
from penstock.errors import InvalidInput, InvalidName, MissingField, NaiveDatetime, TooLarge

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}\Z")
_NAMESPACE: Final = uuid.UUID("6f1b0c52-8f0e-5d0a-9c39-3d2f5b6a7e10")
_CROCKFORD: Final = {letter: value for value, letter in enumerate("0123456789ABCDEFGHJKMNPQRSTVWXYZ")}
_ULID_LENGTH: Final = 26


def check_name(name: Any, what: str) -> str:
    """The name itself; `MissingField` or `InvalidName` otherwise."""
    if name is None or name == "":
        raise MissingField(f"{what} is missing.")
    if not isinstance(name, str) or not NAME.match(name):
        raise InvalidName(f"{what} {str(name)[:140]!r} is not a valid name.")
    return name


def check_key(key: Any, what: str) -> str | None:
    """A key is any text of at most 512 bytes without NUL; None stays None."""
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
    return key


def check_time(value: Any, what: str) -> datetime | None:
    """An aware datetime in UTC; None stays None."""
    if value is None:
        return None
    if not isinstance(value, datetime):
        raise InvalidInput(f"{what} must be a datetime.")
    if value.tzinfo is None or value.utcoffset() is None:
        raise NaiveDatetime(f"{what} {value.isoformat()} has no time zone.")
    return value.astimezone(UTC)


def event_id(text: str) -> uuid.UUID:
    """A stable event id made from text, for appends that must be repeatable.

    >>> event_id("order-7") == event_id("order-7")
    True
    """
    return uuid.uuid5(_NAMESPACE, text)


def parse_event_id(value: Any) -> uuid.UUID:
    """A uuid, the text of one, or a ULID (its 128 bits)."""
    if isinstance(value, uuid.UUID):
        return value
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


@dataclass(frozen=True, slots=True)
class EventColumns:
    """Many new events of the common kind, column by column: JSON, no headers, due at once, ids that are new."""

    stream: str
    event_ids: range  # consecutive, as numbers
    event_types: Sequence[str]
    payloads: Sequence[Any]
    ordering_keys: Sequence[str | None]
    buckets: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.event_ids)

    def chunks(self, size: int = 1_000) -> Iterator[list[tuple[bytes, str, bytes, str | None]]]:
        """(id, type, payload, key) of each event, encoded a chunk at a time: fresh memory costs more than JSON."""
        for start in range(0, len(self), size):
            part = slice(start, start + size)
            payloads = [codec.encode_json(payload) for payload in self.payloads[part]]
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
    """Check every field of an event; raises a coded error that names the first bad one."""
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


def _check_content_type(content_type: Any) -> None:
    if not isinstance(content_type, str) or not content_type.isascii() or not 1 <= len(content_type) <= 128:
        raise InvalidInput("content_type must be ASCII text of at most 128 characters.")
    if not content_type.isprintable():
        raise InvalidInput("content_type must be printable text.")


class Claimed(NamedTuple):
    """What all members of a lease have in common."""

    claimed_at: datetime
    claimed_by: str
    attempts: int
    replay: int


# The columns of a stored event, in the order in which every store reads them.
COLUMNS: Final = (
    "offset",
    "event_id",
    "event_type",
    "payload",
    "content_type",
    "headers",
    "metadata",
    "partition_key",
    "ordering_key",
    "available_at",
    "created_at",
)
_ROW_FIELDS: Final = len(COLUMNS)


class Event:
    """A stored event: a lazy view over one row of a batch.

    Decoding happens on access, so that a handler pays only for what it touches. Rows of retried deliveries carry
    their own attempts, failures, last error and replay number behind the columns.
    """

    __slots__ = ("_claim", "_row", "_store", "stream")

    def __init__(self, row: Sequence[Any], stream: str, claim: Claimed | None, store: Any) -> None:
        self._row = row
        self.stream = stream
        self._claim = claim
        self._store = store

    @property
    def offset(self) -> int:
        """The position in the log."""
        number: int = self._row[0]
        return number

    @property
    def event_id(self) -> uuid.UUID:
        """The id, unique in the whole log."""
        raw = self._row[1]
        return uuid.UUID(raw) if isinstance(raw, str) else uuid.UUID(bytes=bytes(raw))

    @property
    def event_type(self) -> str:
        """What happened, for example `order.created`."""
        kind: str = self._row[2]
        return kind

    @property
    def payload(self) -> bytes:
        """The bytes that were appended, untouched."""
        body: bytes = self._row[3]
        return body

    @property
    def content_type(self) -> str:
        """What the payload's bytes are."""
        kind: str = self._row[4]
        return kind

    @property
    def headers(self) -> dict[str, str]:
        """Text pairs for the consumer at the target."""
        return orjson.loads(self._row[5]) if self._row[5] else {}

    @property
    def metadata(self) -> dict[str, Any]:
        """Internal notes, never sent to a target."""
        return orjson.loads(self._row[6]) if self._row[6] else {}

    @property
    def partition_key(self) -> str | None:
        """Routes at the target; orders nothing."""
        key: str | None = self._row[7]
        return key

    @property
    def ordering_key(self) -> str | None:
        """Events of one key are handled in order, and share state."""
        key: str | None = self._row[8]
        return key

    @property
    def available_at(self) -> datetime | None:
        """Not delivered before this time, if given."""
        moment: datetime | None = self._store.as_time(self._row[9])
        return moment

    @property
    def created_at(self) -> datetime:
        """When the store wrote it."""
        moment: datetime = self._store.as_time(self._row[10])
        return moment

    @property
    def state(self) -> State | None:
        """CLAIMED for an event of a lease; None for one read without a group."""
        return None if self._claim is None else State.CLAIMED

    @property
    def attempts(self) -> int:
        """How often this event was claimed by the group in this lifecycle, this time included."""
        if self._claim is None:
            return 0
        return self._row[_ROW_FIELDS] if len(self._row) > _ROW_FIELDS else self._claim.attempts

    @property
    def failures(self) -> int:
        """How many of its attempts counted against the budget."""
        return self._row[_ROW_FIELDS + 1] if len(self._row) > _ROW_FIELDS else 0

    @property
    def last_error(self) -> str | None:
        """What the last failed attempt said."""
        return self._row[_ROW_FIELDS + 2] if len(self._row) > _ROW_FIELDS else None

    @property
    def replays(self) -> int:
        """How often this delivery was replayed or rewound."""
        if self._claim is None:
            return 0
        return self._row[_ROW_FIELDS + 3] if len(self._row) > _ROW_FIELDS else self._claim.replay

    @property
    def claimed_at(self) -> datetime | None:
        """When the lease began."""
        return None if self._claim is None else self._claim.claimed_at

    @property
    def claimed_by(self) -> str | None:
        """Who holds the lease."""
        return None if self._claim is None else self._claim.claimed_by

    @property
    def published_at(self) -> datetime | None:
        """Always None here: an event in hand is not PUBLISHED. See `log.delivery`."""
        return None

    def json(self) -> Any:
        """The payload, decoded as JSON."""
        return orjson.loads(self._row[3])

    def __repr__(self) -> str:
        return f"<Event {self.stream}@{self.offset} {self.event_type} {self.event_id}>"


class Events(Sequence[Event]):
    """The events of a batch, made when somebody looks at them."""

    __slots__ = ("_claim", "_rows", "_store", "_stream")

    def __init__(self, rows: Sequence[Sequence[Any]], stream: str, claim: Claimed | None, store: Any) -> None:
        self._rows = rows
        self._stream = stream
        self._claim = claim
        self._store = store

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Event]:
        stream, claim, store = self._stream, self._claim, self._store
        return (Event(row, stream, claim, store) for row in self._rows)

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Event]: ...
    def __getitem__(self, index: int | slice) -> Event | Sequence[Event]:
        if isinstance(index, slice):
            return Events(self._rows[index], self._stream, self._claim, self._store)
        return Event(self._rows[index], self._stream, self._claim, self._store)

    def __repr__(self) -> str:
        return f"<{len(self)} events of {self._stream}>"


@dataclass(frozen=True, slots=True)
class Appended:
    """The answer of `append`; `duplicate` says that the same event had been stored before."""

    offset: int
    event_id: uuid.UUID
    duplicate: bool


@dataclass(frozen=True, slots=True)
class AppendedMany:
    """The answer of `append_many`, ids in the order given."""

    event_ids: Sequence[uuid.UUID]
    duplicates: int

"""Stored events: a lazy view over what the store read. A column is built on first access."""

from __future__ import annotations

import uuid
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import cached_property
from operator import itemgetter
from typing import Any, NamedTuple, overload

import orjson

from penstock.core import codec, moments, trace
from penstock.core.columns import COLUMNS, Columns
from penstock.core.delivery import State
from penstock.core.event import ERASED, GIVEN_HEADERS, GIVEN_ID
from penstock.core.lease import Steps

_MANY = 50  # ids from which on it pays to make their texts together
_DIGITS = [place for place in range(36) if place not in (8, 13, 18, 23)]  # where a uuid's text has no dash


def uuid_texts(raw: Sequence[Any]) -> list[str]:
    """Return the texts of many ids, digit by digit: each step puts one digit into all of them.

    >>> uuid_texts([bytes(range(16))])
    ['00010203-0405-0607-0809-0a0b0c0d0e0f']
    """
    digits = b"".join(raw).hex().encode()
    texts = bytearray(b"-") * (36 * len(raw))
    for number, place in enumerate(_DIGITS):
        texts[place::36] = digits[number::32]
    whole = texts.decode()
    return [whole[start : start + 36] for start in range(0, len(whole), 36)]


def moment(raw: Any) -> datetime | None:
    """Decode a time as a store read it: microseconds since 1970, or the eight bytes that PostgreSQL sends."""
    if raw is None or isinstance(raw, datetime):
        return raw
    return moments.of_micros(raw) if isinstance(raw, int) else moments.of_postgres(raw)


class Claimed(NamedTuple):
    """What all members of a lease have in common."""

    claimed_at: datetime
    claimed_by: str
    attempts: int
    replay: int
    earlier: Steps = ()  # attempts of earlier lives, from an offset on


class Event:
    """A stored event: a lazy view over one row of a batch.

    Fields are decoded on access, so that a handler pays only for what it uses.
    """

    __slots__ = ("_index", "_of")

    def __init__(self, of: Events, index: int) -> None:
        self._of = of
        self._index = index

    @property
    def stream(self) -> str:
        """The stream it was appended to."""
        return self._of.stream

    @property
    def offset(self) -> int:
        """The position in the log."""
        return self._of.offsets[self._index]

    @property
    def event_id(self) -> uuid.UUID:
        """The id, unique in the whole log."""
        raw = self._of.event_ids[self._index]
        return uuid.UUID(raw) if isinstance(raw, str) else uuid.UUID(bytes=bytes(raw))

    @property
    def given_id(self) -> str:
        """The id as text, as it was given to `append`: a ULID stays a ULID."""
        if self.has_metadata and isinstance(given := self.metadata.get(GIVEN_ID), str):
            return given
        return self._of.id_texts(self._index, self._index + 1)[0]

    @property
    def event_type(self) -> str:
        """What happened, for example `order.created`."""
        return self._of.event_types[self._index]

    @property
    def payload(self) -> bytes:
        """The bytes that were appended, unchanged."""
        return self._of.payloads[self._index]

    @property
    def erased(self) -> bool:
        """Whether the payload was erased: it is empty, and stays so."""
        return self.has_metadata and ERASED in self.metadata

    @property
    def content_type(self) -> str:
        """The content type of the payload."""
        kind: str = self._of.column("content_type")[self._index]
        return kind

    @property
    def headers(self) -> dict[str, str]:
        """Text pairs for the consumer at the target."""
        return codec.decode_headers(self._of.column("headers")[self._index])

    @property
    def header_pairs(self) -> Sequence[tuple[str, str | bytes]]:
        """The headers as they came in from elsewhere, where a name may occur twice and a value be bytes."""
        if self.has_metadata and GIVEN_HEADERS in (found := self.metadata):
            return codec.decode_pairs(found[GIVEN_HEADERS])
        text = self._of.column("headers")[self._index]
        return [*codec.decode_headers(text).items()] if text else ()

    @property
    def metadata(self) -> dict[str, Any]:
        """Internal notes, never sent to a target."""
        return codec.decode_object(self._of.column("metadata")[self._index])

    @property
    def has_metadata(self) -> bool:
        """Whether there is any."""
        return bool(self._of.column("metadata")[self._index])

    @property
    def has_notes(self) -> bool:
        """Whether there are metadata or headers."""
        return bool(self._of.column("metadata")[self._index] or self._of.column("headers")[self._index])

    @property
    def trace(self) -> dict[str, str]:
        """The trace context, as metadata: `traceparent`, `tracestate` and `correlation_id`, as far as there are any."""
        return trace.inherited(self.metadata, self.headers)

    @property
    def partition_key(self) -> str | None:
        """Routing at the target; it does not affect order."""
        key: str | None = self._of.column("partition_key")[self._index]
        return key

    @property
    def ordering_key(self) -> str | None:
        """Events with the same key are handled in order and share state."""
        return self._of.ordering_keys[self._index]

    @property
    def available_at(self) -> datetime | None:
        """Not delivered before this time, if given."""
        return moment(self._of.column("available_at")[self._index])

    @property
    def created_at(self) -> datetime:
        """When the store wrote it."""
        made = moment(self._of.column("created_at")[self._index])
        assert made is not None
        return made

    @property
    def state(self) -> State | None:
        """CLAIMED for an event of a lease; None for an event read without a group."""
        return None if self._of.claim is None else State.CLAIMED

    @property
    def attempts(self) -> int:
        """How often the group has claimed this event in its current life, this claim included."""
        if self._of.claim is None:
            return 0
        return self._of.claim.attempts if self._of.retries is None else self._of.retries[self._index][0]

    @property
    def total_attempts(self) -> int:
        """How often the group has claimed this event in all its lives, this claim included."""
        of = self._of
        if of.claim is None:
            return 0
        if of.retries is not None:
            attempts, _, _, _, earlier = of.retries[self._index]
            return attempts + earlier
        if not of.claim.earlier:
            return of.claim.attempts
        place = bisect_right(of.claim.earlier, of.offsets[self._index], key=itemgetter(0))
        return of.claim.attempts + (of.claim.earlier[place - 1][1] if place else 0)

    @property
    def failures(self) -> int:
        """How many of its attempts counted against the budget."""
        return 0 if self._of.retries is None else self._of.retries[self._index][1]

    @property
    def last_error(self) -> str | None:
        """The error of the last failed attempt."""
        return None if self._of.retries is None else self._of.retries[self._index][2]

    @property
    def replays(self) -> int:
        """How often this delivery was replayed or rewound."""
        if self._of.claim is None:
            return 0
        return self._of.claim.replay if self._of.retries is None else self._of.retries[self._index][3]

    @property
    def claimed_at(self) -> datetime | None:
        """When the event was claimed."""
        return None if self._of.claim is None else self._of.claim.claimed_at

    @property
    def claimed_by(self) -> str | None:
        """Who holds the lease."""
        return None if self._of.claim is None else self._of.claim.claimed_by

    @property
    def published_at(self) -> datetime | None:
        """Always None: an event of a lease is not PUBLISHED yet. See `log.delivery`."""
        return None

    def json(self) -> Any:
        """Decode the payload as JSON."""
        return orjson.loads(self._of.payloads[self._index])

    def __repr__(self) -> str:
        return f"<Event {self.stream}@{self.offset} {self.event_type} {self.event_id}>"


class Events(Sequence[Event]):
    """The events of a batch, created on access; whole columns are available as lists."""

    def __init__(self, columns: Columns, stream: str, claim: Claimed | None) -> None:
        self._columns = columns
        self.stream = stream
        self.claim = claim

    def column(self, name: str) -> Sequence[Any]:
        """Return one column by its name in the log."""
        found = self.__dict__.get(name)
        if found is None:
            found = self.__dict__[name] = self._columns.column(COLUMNS.index(name))
        values: Sequence[Any] = found
        return values

    @cached_property
    def offsets(self) -> Sequence[int]:
        """The positions in the log, ascending."""
        return self._columns.column(0)

    @cached_property
    def event_ids(self) -> Sequence[bytes | str]:
        """The ids, in the store's own form."""
        return self._columns.column(1)

    @cached_property
    def event_types(self) -> Sequence[str]:
        """The types."""
        return self._columns.column(2)

    @cached_property
    def payloads(self) -> Sequence[bytes]:
        """The payloads."""
        return self._columns.column(3)

    @cached_property
    def ordering_keys(self) -> Sequence[str | None]:
        """The ordering keys."""
        return self._columns.column(8)

    def id_texts(self, first: int, last: int) -> list[str]:
        """Return the ids of some events as text, without making a uuid of each."""
        raw = self.event_ids[first:last]
        if len(raw) >= _MANY and isinstance(raw[0], bytes):
            return uuid_texts(raw)
        hexes = [one.replace("-", "") if isinstance(one, str) else one.hex() for one in raw]
        return [f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}" for h in hexes]

    def every(self, name: str, step: int) -> Sequence[Any]:
        """Return the values that every n-th event has in a column."""
        return self._columns.every(COLUMNS.index(name), step)

    def of_same_keys(self, places: Sequence[int], end: int) -> list[tuple[int, str]]:
        """Return (place, key) of the events before `end` that share an ordering key with one of `places`."""
        return self._columns.alike(8, places, end)

    @cached_property
    def retries(self) -> list[tuple[int, int, str | None, int, int]] | None:
        """(attempts, failures, last error, replays, attempts of earlier lives) per event; None for a range."""
        if self._columns.width == len(COLUMNS):
            return None
        return list(zip(*(self._columns.column(len(COLUMNS) + more) for more in range(5)), strict=True))

    def pack(self, first: int, last: int) -> tuple[str, Any]:
        """Serialize some of the events for another process; see `core.columns.unpack`."""
        return self._columns.pack(first, last)

    def nbytes(self) -> int:
        """Estimate the memory that the payloads take, in bytes."""
        return self._columns.nbytes()

    def __len__(self) -> int:
        return len(self._columns)

    def __iter__(self) -> Iterator[Event]:
        return (Event(self, index) for index in range(len(self._columns)))

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Event]: ...
    def __getitem__(self, index: int | slice) -> Event | Sequence[Event]:
        if isinstance(index, slice):
            return [Event(self, place) for place in range(len(self))[index]]
        return Event(self, range(len(self))[index])

    def __repr__(self) -> str:
        return f"<{len(self)} events of {self.stream}>"


class Chosen(Sequence[Event]):
    """Some of the events of a batch, for one that most often needs their columns alone."""

    def __init__(self, of: Events, indexes: Sequence[int]) -> None:
        self.of = of
        self.indexes = indexes

    def __len__(self) -> int:
        return len(self.indexes)

    @overload
    def __getitem__(self, place: int) -> Event: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Event]: ...
    def __getitem__(self, place: int | slice) -> Event | Sequence[Event]:
        if isinstance(place, slice):
            return Chosen(self.of, self.indexes[place])
        return Event(self.of, self.indexes[place])

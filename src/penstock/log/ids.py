"""Event ids: UUIDv7, so that new ids land at the end of the index."""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Sequence
from typing import overload

_VERSION = 7 << 76
_VARIANT = 2 << 62


def uuid7() -> uuid.UUID:
    """Make a new id."""
    milliseconds = time.time_ns() // 1_000_000
    random_a, random_b = secrets.randbits(12), secrets.randbits(62)
    return uuid.UUID(int=(milliseconds & (2**48 - 1)) << 80 | _VERSION | random_a << 64 | _VARIANT | random_b)


def uuid7_many(count: int) -> range:
    """Make many new ids as consecutive numbers: one random number for the batch, then a counter."""
    milliseconds = time.time_ns() // 1_000_000
    random_a, random_b = secrets.randbits(12), secrets.randbits(38) << 24
    first = (milliseconds & (2**48 - 1)) << 80 | _VERSION | random_a << 64 | _VARIANT | random_b
    return range(first, first + count)


class EventIds(Sequence[uuid.UUID]):
    """Ids kept as numbers and shown as uuids: creating 10,000 uuid objects costs as much as storing the events."""

    __slots__ = ("_raw",)

    def __init__(self, raw: range | Sequence[int] | Sequence[uuid.UUID]) -> None:
        self._raw = raw

    def __len__(self) -> int:
        return len(self._raw)

    @overload
    def __getitem__(self, index: int) -> uuid.UUID: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[uuid.UUID]: ...
    def __getitem__(self, index: int | slice) -> uuid.UUID | Sequence[uuid.UUID]:
        if isinstance(index, slice):
            return EventIds(self._raw[index])
        raw = self._raw[index]
        return raw if isinstance(raw, uuid.UUID) else uuid.UUID(int=raw)

    @property
    def numbers(self) -> Sequence[int]:
        """The ids as numbers of 128 bits."""
        return [one.int if isinstance(one, uuid.UUID) else one for one in self._raw]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # a sequence that compares by content

    def __repr__(self) -> str:
        return f"<{len(self)} event ids>"


def texts(ids: Sequence[uuid.UUID]) -> list[str]:
    """Return ids as text; many of them without making a uuid of each."""
    numbers = ids.numbers if isinstance(ids, EventIds) else [one.int for one in ids]
    return [f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}" for h in map("%032x".__mod__, numbers)]

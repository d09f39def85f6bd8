"""Ids of stream entries, `<ms>-<n>`: compared as two numbers, and many of them packed into a few bytes."""

from __future__ import annotations

import sys
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from penstock.core.limits import INGEST_RANGE_MS

_MOST = 2**64 - 1


class EntryId(NamedTuple):
    """An id as two numbers of 64 bits."""

    ms: int
    n: int

    def __str__(self) -> str:
        return f"{self.ms}-{self.n}"

    @property
    def key(self) -> bytes:
        """Sixteen bytes that compare as the two numbers do."""
        return self.ms.to_bytes(8, "big") + self.n.to_bytes(8, "big")


def parse(text: str | bytes) -> EntryId:
    """Read an id as the server writes it.

    >>> parse("1526919030474-55") < parse("1526919030474-123")
    True
    """
    return EntryId._make(map(int, text.split(b"-") if isinstance(text, bytes) else text.split("-")))


def parse_all(texts: Iterable[bytes]) -> list[EntryId]:
    """Read many ids.

    >>> parse_all([b"1526919030474-55", b"7-0"])
    [EntryId(ms=1526919030474, n=55), EntryId(ms=7, n=0)]
    """
    joined = b"-".join(texts)
    numbers = [*map(int, joined.split(b"-"))] if joined else []
    return [*map(EntryId, numbers[::2], numbers[1::2])]


def parse_key(key: bytes) -> EntryId:
    """Return the id that has this key."""
    return EntryId(int.from_bytes(key[:8], "big"), int.from_bytes(key[8:], "big"))


def ranges(ids: Iterable[EntryId]) -> Iterator[list[EntryId]]:
    """Sort ids and cut them into short ranges of time, so that few remembered ranges overlap."""
    ordered = sorted(ids)
    if ordered and ordered[-1].ms - ordered[0].ms <= INGEST_RANGE_MS:  # as most are
        yield ordered
        return
    part: list[EntryId] = []
    for one in ordered:
        if part and one.ms - part[0].ms > INGEST_RANGE_MS:
            yield part
            part = []
        part.append(one)
    if part:
        yield part


def furthest(last: EntryId) -> EntryId:
    """Return where a range that begins at or before `last` ends at the latest."""
    return EntryId(min(last.ms + INGEST_RANGE_MS, _MOST), _MOST)


def pack(ids: Sequence[EntryId]) -> bytes:
    """Encode sorted ids: their differences are small and compress well."""
    given = [EntryId(0, 0), *ids]
    times = array("Q", [one[0] - last[0] for last, one in pairwise(given)])
    numbers = array("Q", [(one[1] - last[1]) & _MOST for last, one in pairwise(given)])
    return zlib.compress(_little(times) + _little(numbers), 1)


def unpack(packed: bytes) -> list[EntryId]:
    """Return what `pack` was given."""
    raw = zlib.decompress(packed)
    times, numbers = array("Q"), array("Q")
    times.frombytes(raw[: len(raw) // 2])
    numbers.frombytes(raw[len(raw) // 2 :])
    if sys.byteorder == "big":
        times.byteswap()
        numbers.byteswap()
    found: list[EntryId] = []
    ms = n = 0
    for further, more in zip(times, numbers, strict=True):
        ms, n = ms + further, (n + more) & _MOST
        found.append(EntryId(ms, n))
    return found


def _little(numbers: array[int]) -> bytes:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()

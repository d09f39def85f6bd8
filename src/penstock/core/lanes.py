"""Lanes: slices of the 256 buckets into which ordering keys fall."""

from __future__ import annotations

from hashlib import sha256

from penstock.core.limits import BUCKETS, LANES
from penstock.errors import InvalidInput


def bucket_of(ordering_key: str | None, offset: int = 0) -> int:
    """Return the bucket of a key, the same in every client; without a key the offset decides."""
    if ordering_key is None:
        return offset % BUCKETS
    return sha256(ordering_key.encode()).digest()[0]


def check_lanes(lanes: int) -> int:
    """Check the number of lanes: a power of two, so that every lane can be split in half."""
    if not isinstance(lanes, int) or not 1 <= lanes <= LANES or lanes & (lanes - 1):
        raise InvalidInput(f"lanes must be a power of two between 1 and {LANES}, not {lanes!r}.")
    return lanes


def slice_of(lane: int, lanes: int) -> tuple[int, int]:
    """Return the first and last bucket of a lane.

    >>> slice_of(1, 8)
    (32, 63)
    """
    width = BUCKETS // lanes
    return lane * width, (lane + 1) * width - 1


def lane_of(bucket: int, lanes: int) -> int:
    """Return the lane of a bucket."""
    return bucket * lanes // BUCKETS


def children(lane: int) -> tuple[int, int]:
    """Return the two lanes that a lane is split into when its group's lanes are doubled."""
    return 2 * lane, 2 * lane + 1

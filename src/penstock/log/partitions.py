"""Split a stream into ranges of about equally many events, without reading it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise

from penstock.core.limits import PARTITION_BYTES, PARTITION_EVENTS, TALLY_EVERY
from penstock.stores.base import Transaction

Block = tuple[int, int, int]  # (low, high], and how many events are in it
_WORTHWHILE = 1_000  # events that are worth a task of their own
_SAMPLES, _SAMPLE_EVENTS = 8, 50  # blocks whose first events tell the size of payloads


def bounds(
    tx: Transaction, stream: str, *, after: int, upto: int | None, since: datetime | None, until: datetime | None
) -> tuple[int, int]:
    """Return (low, high] with every wanted event below the horizon; empty if low = high."""
    horizon = tx.horizon()
    high = horizon if upto is None else min(horizon, upto)
    low = after
    if since is not None:
        then = tx.one("source.between", stream=stream, since=since, until=until)
        if then is None or then.first is None:
            return low, low
        low, high = max(low, then.first - 1), min(high, then.last)
    return low, max(low, high)


def cut(tx: Transaction, stream: str, low: int, high: int, pieces: int, *, exactly: bool) -> list[tuple[int, int]]:
    """Split (low, high] into `pieces` ranges of about equally many events; into fewer if there are few events and not
    `exactly`.

    Streams share one sequence of offsets, so events are counted: in blocks, from the tally and the index. One index
    lookup then finds the event within a block at which a range ends.
    """
    blocks = _blocks(tx, stream, low, high)
    total = sum(events for _, _, events in blocks)
    most = total if exactly else -(-total // _WORTHWHILE)
    return _ranges(tx, stream, low, high, blocks, min(pieces, most))


def cut_by_size(tx: Transaction, stream: str, low: int, high: int, *, payloads: bool) -> list[tuple[int, int]]:
    """Split (low, high] into ranges of about `PARTITION_EVENTS` events, fewer if large payloads are read with them."""
    blocks = _blocks(tx, stream, low, high)
    total = sum(events for _, _, events in blocks)
    size = PARTITION_EVENTS
    if payloads and total:
        size = max(1, min(size, PARTITION_BYTES // max(1, _payload_bytes(tx, stream, blocks))))
    return _ranges(tx, stream, low, high, blocks, -(-total // size))


def _payload_bytes(tx: Transaction, stream: str, blocks: Sequence[Block]) -> int:
    """Return about how many bytes a payload has, from samples all over the blocks."""
    step = max(1, len(blocks) // _SAMPLES)
    found = [
        tx.one("source.sample", stream=stream, low=low, high=high, most=_SAMPLE_EVENTS)
        for low, high, _ in blocks[::step]
    ]
    sizes = [int(row.bytes) for row in found if row is not None and row.bytes is not None]
    return sum(sizes) // len(sizes) if sizes else 0


def _ranges(
    tx: Transaction, stream: str, low: int, high: int, blocks: Sequence[Block], pieces: int
) -> list[tuple[int, int]]:
    total = sum(events for _, _, events in blocks)
    if total == 0:
        return []
    ends: set[int] = set()
    place = passed = 0
    for target in (total * number // pieces for number in range(1, pieces)):
        while target > passed + blocks[place][2]:
            passed, place = passed + blocks[place][2], place + 1
        ends.add(_nth(tx, stream, blocks[place], target - passed))
    return list(pairwise([low, *sorted(end for end in ends if low < end < high), high]))


def _blocks(tx: Transaction, stream: str, low: int, high: int) -> list[Block]:
    """Return (low, high, events) of every block with events: from the steps of the tally, and counted around them."""
    steps = [(int(row.upto), int(row.events)) for row in tx.rows("source.counted", stream=stream, low=low, high=high)]
    if low == 0:
        steps.insert(0, (0, 0))
    blocks = [(at, upto, events - before) for (at, before), (upto, events) in pairwise(steps)]
    first, last = (steps[0][0], steps[-1][0]) if steps else (low, low)
    blocks = [*_counted(tx, stream, low, first), *blocks, *_counted(tx, stream, last, high)]
    return [block for block in blocks if block[2]]


def _counted(tx: Transaction, stream: str, low: int, high: int) -> list[Block]:
    if low >= high:
        return []
    size = TALLY_EVERY
    found = tx.rows("source.count", stream=stream, low=low, high=high, size=size)
    return [(max(low, row.block * size), min(high, (row.block + 1) * size), row.events) for row in found]


def _nth(tx: Transaction, stream: str, block: Block, number: int) -> int:
    """Return the offset of the n-th event of a block."""
    low, high, _ = block
    found = tx.one("source.nth", stream=stream, low=low, high=high, skip=max(0, number - 1))
    return high if found is None else int(found.offset)

"""Split a stream into ranges of about equally many events, without reading it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise

from penstock.core.limits import TALLY_EVERY
from penstock.stores.base import Transaction

_WORTHWHILE = 1_000  # events that are worth a task of their own


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
    if total == 0:
        return []
    most = total if exactly else -(-total // _WORTHWHILE)
    ends: list[int] = []
    for target in _targets(total, min(pieces, most)):
        ends.append(_nth(tx, stream, blocks, target))
    edges = [low, *sorted({end for end in ends if low < end < high}), high]
    return list(pairwise(edges))


def _targets(total: int, pieces: int) -> list[int]:
    return [total * number // pieces for number in range(1, pieces)]


def _blocks(tx: Transaction, stream: str, low: int, high: int) -> list[tuple[int, int, int]]:
    """Return (low, high, events) of every block with events: from the steps of the tally, and counted around them."""
    steps = [(int(row.upto), int(row.events)) for row in tx.rows("source.counted", stream=stream, low=low, high=high)]
    if low == 0:
        steps.insert(0, (0, 0))
    blocks = [(at, upto, events - before) for (at, before), (upto, events) in pairwise(steps)]
    first, last = (steps[0][0], steps[-1][0]) if steps else (low, low)
    blocks = [*_counted(tx, stream, low, first), *blocks, *_counted(tx, stream, last, high)]
    return [block for block in blocks if block[2]]


def _counted(tx: Transaction, stream: str, low: int, high: int) -> list[tuple[int, int, int]]:
    if low >= high:
        return []
    size = TALLY_EVERY
    found = tx.rows("source.count", stream=stream, low=low, high=high, size=size)
    return [(max(low, row.block * size), min(high, (row.block + 1) * size), row.events) for row in found]


def _nth(tx: Transaction, stream: str, blocks: Sequence[tuple[int, int, int]], number: int) -> int:
    """Return the offset of the n-th event."""
    for low, high, events in blocks:
        if number <= events:
            found = tx.one("source.nth", stream=stream, low=low, high=high, skip=number - 1)
            return high if found is None else int(found.offset)
        number -= events
    raise AssertionError("more events asked for than were counted")

"""Cut a lease into pieces by its members."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from penstock.core.lease import LeaseRow

Span = tuple[int, int]  # members[first:last] of a lease


def evenly(span: Span, count: int) -> list[Span]:
    """Cut a span into at most `count` spans of about equal size, none of them empty.

    >>> evenly((0, 5), 2), evenly((5, 5), 2)
    ([(0, 2), (2, 5)], [])
    """
    first, last = span
    count = min(count, last - first)
    if not count:
        return []
    return list(pairwise(first + (last - first) * step // count for step in range(count + 1)))


def around(span: Span, failed: Span | None, count: int) -> list[Span]:
    """Split around the part that failed: before it, itself, after it; if it is unknown, into equal spans."""
    first, last = span
    bounds = {first, last}
    if failed is not None:
        bounds |= {min(max(bound, first), last) for bound in failed}
    return list(pairwise(sorted(bounds))) if len(bounds) > 2 else evenly(span, count)


def span_of(piece: LeaseRow, members: Sequence[int]) -> Span:
    """Return which members of its lease a piece holds."""
    low, high = (piece.offsets[0] - 1, piece.offsets[-1]) if piece.offsets else (piece.low, piece.high)
    assert low is not None and high is not None
    return bisect_right(members, low), bisect_right(members, high)


def pieces_of(row: LeaseRow, members: Sequence[int], spans: Sequence[Span]) -> list[LeaseRow]:
    """Return a piece of a lease for each span."""
    return list(_pieces(row, members, spans))


def _pieces(row: LeaseRow, members: Sequence[int], spans: Sequence[Span]) -> Iterator[LeaseRow]:
    for first, last in spans:
        if row.offsets is not None:
            yield replace(row, offsets=list(members[first:last]), members=last - first)
            continue
        yield replace(
            row,
            low=members[first - 1] if first else row.low,
            high=members[last - 1] if last < len(members) else row.high,
            members=last - first,
            found=None,
            whole=row.whole and row.lanes == 1,
        )

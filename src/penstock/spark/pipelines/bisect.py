"""Finding what is poisonous in a batch: it is cut until the culprits stand alone, and everything else goes on.

The function sees every piece as a batch of its own. Pieces are worked on from left to right, so that whatever is not
reached within the limit of jobs is the end of the lease, and goes back as one range.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from penstock.core.lease import Failure, LeaseRow
from penstock.core.limits import PIPELINE_JOBS
from penstock.spark.arrow import parts
from penstock.spark.pipelines.spark_jobs import SparkJobFailed

_PARTITIONS = 8  # of the DataFrame of a piece: the one that fails names the next piece
_CUTS = 4  # pieces, when nobody knows where it failed


@dataclass(slots=True)
class Result:
    """What a job put aside, and the events that failed by the function's own word."""

    aside: list[Any] = field(default_factory=list)
    failed: dict[int, Failure] = field(default_factory=dict)

    def add(self, other: Result) -> None:
        self.aside += other.aside
        self.failed |= other.failed


@dataclass(slots=True)
class Worked(Result):
    """What became of a lease. Members from `rest` on were not reached; None if all were."""

    rest: int | None = None
    members: Sequence[int] = ()  # by offset; only known if something had to be looked for
    away: Failure | None = None  # why it was given up, if no event is to blame

    def upto(self, row: LeaseRow) -> int | None:
        """Where the finished part of a range ends."""
        if row.offsets is not None or self.rest is None:
            return row.high
        return self.members[self.rest - 1] if self.rest else row.low

    def released(self, row: LeaseRow) -> frozenset[int]:
        """Rows of a list lease that were not reached."""
        if row.offsets is None or self.rest is None:
            return frozenset()
        return frozenset(self.members[self.rest :])


# Runs one job over pieces of a lease; so many of its tasks may fail.
Job = Callable[[LeaseRow, Sequence[LeaseRow], int], Result]


def isolate(
    row: LeaseRow,
    partitions: int,
    job: Job,
    members_of: Callable[[LeaseRow], list[int]],
    stopped: Callable[[], bool],
) -> Worked:
    """Run a lease; if that fails, in smaller and smaller pieces."""
    worked = Worked()
    pieces = parts(row, partitions)
    try:
        worked.add(job(row, pieces, 1 if row.members == 1 else 0))
        return worked
    except SparkJobFailed as error:
        worked.members = members = members_of(row)
        if error.away or stopped():
            worked.rest, worked.away = 0, error.failure if error.away else None
            return worked
        if len(members) == 1:
            worked.failed[members[0]] = error.failure
            return worked
        waiting = list(reversed(list(_cut(members, 0, len(members), pieces, error.partition))))
    for _ in range(PIPELINE_JOBS - 1):
        if not waiting or stopped():
            break
        first, last = waiting.pop()
        piece = _piece(row, members, first, last)
        pieces = list(_partitions(row, members, first, last))
        try:
            worked.add(job(piece, pieces, 1 if last - first == 1 else 0))
        except SparkJobFailed as error:
            if error.away or stopped():
                waiting.append((first, last))
                worked.away = error.failure if error.away else None
                break
            if last - first == 1:
                worked.failed[members[first]] = error.failure
            else:
                waiting += reversed(list(_cut(members, first, last, pieces, error.partition)))
    worked.rest = waiting[-1][0] if waiting else None
    return worked


def _cut(
    members: Sequence[int], first: int, last: int, pieces: Sequence[LeaseRow], failed: int | None
) -> Iterator[tuple[int, int]]:
    """What lies left of the piece that failed, the piece, and what lies right of it; or a few equal pieces."""
    bounds = {first, last}
    if failed is not None and len(pieces) > 1:
        piece = pieces[failed]
        low, high = (piece.offsets[0] - 1, piece.offsets[-1]) if piece.offsets else (piece.low, piece.high)
        assert low is not None and high is not None
        bounds |= {min(max(bisect_right(members, bound), first), last) for bound in (low, high)}
    if len(bounds) == 2:
        bounds |= {first + (last - first) * step // _CUTS for step in range(_CUTS)}
    ordered = sorted(bounds)
    yield from pairwise(ordered)


def _partitions(row: LeaseRow, members: Sequence[int], first: int, last: int) -> Iterator[LeaseRow]:
    count = min(_PARTITIONS, last - first)
    bounds = [first + (last - first) * step // count for step in range(count + 1)]
    for low, high in pairwise(bounds):
        yield _piece(row, members, low, high)


def _piece(row: LeaseRow, members: Sequence[int], first: int, last: int) -> LeaseRow:
    """The part of a lease that holds these of its members."""
    if row.offsets is not None:
        return replace(row, offsets=list(members[first:last]), members=last - first)
    return replace(
        row,
        low=members[first - 1] if first else row.low,
        high=members[last - 1] if last < len(members) else row.high,
        members=last - first,
        found=None,
        whole=row.whole and row.lanes == 1,
    )

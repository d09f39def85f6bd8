"""Find the poisonous events of a batch: split it until they are alone; all others succeed.

The function sees every piece as a batch of its own. Pieces are run from left to right, so that what is not reached
within `PIPELINE_JOBS` is the end of the lease, and is released as one range.
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

_PARTITIONS = 8  # of a piece's DataFrame: the one that fails is the next piece
_CUTS = 4  # pieces, if it is not known where it failed


@dataclass(slots=True)
class Result:
    """What a Spark job staged, and the events that the function itself failed."""

    aside: list[Any] = field(default_factory=list)
    failed: dict[int, Failure] = field(default_factory=dict)

    def add(self, other: Result) -> None:
        self.aside += other.aside
        self.failed |= other.failed


@dataclass(slots=True)
class Worked(Result):
    """The result of a lease. Members from index `rest` on were not reached; None if all were."""

    rest: int | None = None
    members: Sequence[int] = ()  # offsets; only known if the lease was split
    away: Failure | None = None  # why it stopped, if no event is to blame

    def upto(self, row: LeaseRow) -> int | None:
        """Return the offset where the finished part of a range ends."""
        if row.offsets is not None or self.rest is None:
            return row.high
        return self.members[self.rest - 1] if self.rest else row.low

    def released(self, row: LeaseRow) -> frozenset[int]:
        """Return the members of a list lease that were not reached."""
        if row.offsets is None or self.rest is None:
            return frozenset()
        return frozenset(self.members[self.rest :])


# Runs one Spark job: takes part of a lease, its partitions, and how many tasks may fail.
SparkJob = Callable[[LeaseRow, Sequence[LeaseRow], int], Result]


def isolate(
    row: LeaseRow,
    partitions: int,
    spark_job: SparkJob,
    members_of: Callable[[LeaseRow], list[int]],
    stopped: Callable[[], bool],
) -> Worked:
    """Run a lease; if that fails, split it until the culprits are alone."""
    worked = Worked()
    pieces = parts(row, partitions)
    try:
        worked.add(spark_job(row, pieces, 1 if row.members == 1 else 0))
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
            worked.add(spark_job(piece, pieces, 1 if last - first == 1 else 0))
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
    """Split around the partition that failed: before it, itself, after it; if unknown, into equal pieces."""
    bounds = {first, last}
    if failed is not None and len(pieces) > 1:
        piece = pieces[failed]
        low, high = (piece.offsets[0] - 1, piece.offsets[-1]) if piece.offsets else (piece.low, piece.high)
        assert low is not None and high is not None
        bounds |= {min(max(bisect_right(members, bound), first), last) for bound in (low, high)}
    if len(bounds) == 2:
        bounds |= {first + (last - first) * step // _CUTS for step in range(_CUTS)}
    yield from pairwise(sorted(bounds))


def _partitions(row: LeaseRow, members: Sequence[int], first: int, last: int) -> Iterator[LeaseRow]:
    count = min(_PARTITIONS, last - first)
    bounds = [first + (last - first) * step // count for step in range(count + 1)]
    for low, high in pairwise(bounds):
        yield _piece(row, members, low, high)


def _piece(row: LeaseRow, members: Sequence[int], first: int, last: int) -> LeaseRow:
    """Return the part of a lease that holds members[first:last]."""
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

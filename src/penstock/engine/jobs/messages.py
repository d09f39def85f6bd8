"""What an engine and the process of a job type say to each other. A job is known by its batch and its place in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.core.batch import Claimed
from penstock.core.lease import Failure
from penstock.engine.handlers.context import Recorded

PLACE_BITS = 20  # of the number by which shared memory knows a job: its batch, and its place in it


class Feed(NamedTuple):
    """Jobs to do, in the body of the message."""

    batch: int
    kind: str
    stream: str
    claim: Claimed | None
    token: int


class Recall(NamedTuple):
    """Give back what has not begun of a batch; the answer says what still runs."""

    batch: int


class Recalled(NamedTuple):
    """The answer: everything else of the batch was reported before, or has not begun."""

    batch: int
    running: frozenset[int]


class Cancel(NamedTuple):
    """Somebody wants a job to end, or its lease is lost."""

    batch: int
    place: int


@dataclass(slots=True)
class Outcomes:
    """Jobs that have ended since the last report: all in `ended`, with more about some of them; and their progress."""

    ended: dict[int, Sequence[int]] = field(default_factory=dict)  # places, by batch
    failed: dict[tuple[int, int], Failure] = field(default_factory=dict)
    dead: dict[tuple[int, int], Failure] = field(default_factory=dict)
    unavailable: dict[tuple[int, int], Failure] = field(default_factory=dict)
    results: dict[tuple[int, int], str] = field(default_factory=dict)
    effects: dict[tuple[int, int], Recorded] = field(default_factory=dict)
    progress: dict[tuple[int, int], tuple[float | None, str | None]] = field(default_factory=dict)
    seconds: float = 0.0  # that the jobs took, one after the other

    def __bool__(self) -> bool:
        return bool(self.ended or self.progress)

    @property
    def plain(self) -> bool:
        """Whether there is nothing more to say than that the jobs have ended."""
        return not (self.failed or self.dead or self.unavailable or self.results or self.effects)


def number_of(batch: int, place: int) -> int:
    """Return the number by which shared memory knows a job; never 0."""
    return (batch << PLACE_BITS) + place + 1


def job_of(number: int) -> tuple[int, int]:
    """Return batch and place of a job in shared memory.

    >>> job_of(number_of(7, 3))
    (7, 3)
    """
    return (number - 1) >> PLACE_BITS, (number - 1) & ((1 << PLACE_BITS) - 1)

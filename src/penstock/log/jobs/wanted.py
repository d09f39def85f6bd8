"""The streams that a worker's types may have jobs in, and which of them are known to have had one."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.core.event import check_name
from penstock.core.job import PRIORITIES, JobName, check_job_name, check_queue
from penstock.core.lease import Idle
from penstock.errors import InvalidInput

_FORGET_SECONDS: Final = 60.0  # a restored log may have events below what was searched
_MOST: Final = 1_000  # different sets of types of one open log


@dataclass(slots=True)
class Wanted:
    """Types of a queue. Two hundred types have two thousand streams, one for each priority, and most of them never had
    a job: the log is searched for them once, and then only what was appended since."""

    queue: str
    types: Sequence[str]
    streams: set[str] = field(default_factory=set)  # that had a job when the log was searched
    searched_upto: int | None = None
    simple: bool = False  # whether the last claim was one that a single statement can do
    trickles: bool = False  # whether the last lease was a small one: the next will be, too, and so needs one statement
    rest: Idle | None = None  # what a claim would say now, if the last lease is known to have left nothing
    _forget_at: float = 0.0

    def possible(self) -> list[str]:
        """Return all streams that jobs of these types may be in."""
        return [JobName(self.queue, priority, one).stream for one in self.types for priority in PRIORITIES]

    def since(self) -> int | None:
        """Return from where on the log is to be searched for streams; None is all of it."""
        now = time.monotonic()
        if now >= self._forget_at:
            self.searched_upto, self._forget_at = None, now + _FORGET_SECONDS
        return self.searched_upto

    def found(self, streams: Iterable[str], upto: int | None) -> None:
        """Remember the streams of a look."""
        self.streams.update(streams)
        self.searched_upto = upto


class WantedTypes:
    """What the workers of one open log want."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, tuple[str, ...]], Wanted] = {}

    def of(self, types: Any, queue: Any) -> Wanted:
        """Return the types as wanted before, if they were."""
        where = check_queue(queue)
        if isinstance(types, str) or not isinstance(types, Sequence):
            raise InvalidInput("types must be a list of job types.")
        key = (where, tuple(check_name(one, "type") for one in types))
        known = self._known.get(key)
        if known is None:
            for one in types:
                check_job_name(one, where, 0)
            if len(self._known) >= _MOST:
                self._known.clear()
            known = self._known[key] = Wanted(where, key[1])
        return known

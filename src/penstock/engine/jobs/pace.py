"""How fast a job type is done, and so whether its jobs share a lease, and how many are claimed."""

from __future__ import annotations

from penstock.core.limits import BATCH
from penstock.engine.pace import Pace

BATCH_SECONDS = 1.0  # of work in one lease, about
_MEASURE_SECONDS = 0.02  # of work, or …
_MEASURE_JOBS = 16  # … jobs, before a pace is believed
_QUICK = 8  # jobs that a place does in a lease; with fewer, each job has a lease of its own


class JobPace:
    """The measured speed of a job type with so many places."""

    def __init__(self, places: int, *, one_by_one: bool) -> None:
        self._places = places
        self._one_by_one = one_by_one
        self._pace = Pace(BATCH_SECONDS, BATCH)
        self._measured = False
        self._busy, self._ended = 0.0, 0

    def ran(self, ended: int, seconds: float) -> None:
        """Note how many jobs have ended, and how long they took, one after the other."""
        self._busy += seconds / self._places
        self._ended += ended
        if self._ended and (self._busy >= _MEASURE_SECONDS or self._ended >= _MEASURE_JOBS):
            self._pace.ran(self._ended, self._busy)
            self._measured, self._busy, self._ended = True, 0.0, 0

    def saw(self, left: int | None) -> None:
        """Note how many jobs follow the last lease; None if unknown."""
        self._pace.saw(left)

    def room(self, left: int) -> tuple[int, bool]:
        """Return how many jobs to claim while so many are not done, and whether they are to share a lease."""
        if not self._measured or self._one_by_one or _QUICK * self._pace.seconds_for(self._places) > BATCH_SECONDS:
            return self._places - left, False
        limit = self._pace.limit
        return (limit if left <= limit // 2 else 0), True

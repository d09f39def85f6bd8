"""Jobs that should end: cancelled ones, and those whose lease is lost."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from penstock.engine.isolation.marks import Marks
from penstock.engine.jobs.desk import JobKey
from penstock.engine.jobs.messages import number_of

GRACE_SECONDS = 10.0  # for a job that was told to end, before its process is killed


class Doomed:
    """Which jobs were told to end, and until when. One that has not begun by then will not, and harms nobody."""

    def __init__(self, marks: Marks) -> None:
        self._marks = marks
        self._until: dict[JobKey, float] = {}

    def add(self, job: JobKey) -> None:
        """Wait for the end of a job from now on."""
        self._until.setdefault(job, time.monotonic() + GRACE_SECONDS)

    def forget(self, job: JobKey) -> None:
        """Wait no more: it was given back."""
        self._until.pop(job, None)

    def ended(self, places: Mapping[int, Sequence[int]]) -> None:
        """Forget the jobs that have ended, by batch."""
        for number, place in [*self._until]:
            if place in places.get(number, ()):
                del self._until[number, place]

    def clear(self) -> None:
        """Forget all: their process is gone."""
        self._until.clear()

    def late(self, now: float) -> JobKey | None:
        """Return a job that should have ended, and still runs."""
        return next((job for job, until in self._until.items() if now > until and self.runs(job)), None)

    def runs(self, job: JobKey) -> bool:
        """Whether a job has begun and not ended."""
        return number_of(*job) in self._marks.slots

    def __len__(self) -> int:
        return len(self._until)

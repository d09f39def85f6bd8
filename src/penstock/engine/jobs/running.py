"""Since when the places of a process run their jobs."""

from __future__ import annotations

from penstock.declare.job import JobType
from penstock.engine.isolation.marks import Marks
from penstock.engine.jobs.desk import JobKey
from penstock.engine.jobs.messages import job_of

_LATE = 1.5  # times its limit, and a second: a loop that does not end its tasks itself is blocked


class Running:
    """Looks at the marks that the process sets for the jobs it runs."""

    def __init__(self, marks: Marks) -> None:
        self._marks = marks
        self._since: dict[int, tuple[int, float]] = {}  # by slot: its value, since when

    def late(self, now: float, limit: float, job: JobType) -> JobKey | None:
        """Return a job that has run longer than it may."""
        limit = _LATE * limit + 1 if job.is_async else limit
        for slot, value in enumerate(self._marks.slots):
            known, since = self._since.get(slot, (0, now))
            if not value or value != known:
                self._since[slot] = (value, now)
            elif now - since > limit:
                return job_of(value)
        return None

"""The tokens of the jobs that one client has claimed, so that its caller need not carry them."""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final

from penstock.core.event import parse_event_id
from penstock.core.job import Job
from penstock.errors import LeaseLost

_MOST: Final = 100_000


class HeldTokens:
    """What this client has claimed: only here does a worker's name stand for a token."""

    def __init__(self) -> None:
        self._held: OrderedDict[uuid.UUID, tuple[str | None, int]] = OrderedDict()

    def add(self, jobs: Iterable[Job]) -> None:
        """Remember jobs that were claimed."""
        for job in jobs:
            if job.token is not None:
                self._held[job.id] = (job.worker, job.token)
        while len(self._held) > _MOST:
            self._held.popitem(last=False)

    def token(self, job_id: Any, worker: str, token: int | None) -> int:
        """Return the token that was given, else the one of this client's own claim; `LeaseLost` if there is none."""
        if token is not None:
            return token
        one = parse_event_id(job_id)
        name, known = self._held.get(one, (None, None))
        if known is None or name != worker:
            raise LeaseLost(f"{worker} does not hold the job {one} here; give the token of its claim.")
        return known

"""Steps of workers that claim jobs one at a time."""

from __future__ import annotations

from collections.abc import Sequence

import penstock


def types_claimed(log: penstock.Log, types: Sequence[str] | None = None, worker: str = "w") -> list[str]:
    """Claim and complete until nothing is due; the types in the order in which they were claimed."""
    found = []
    while (job := log.claim_job(worker, types)) is not None:
        found.append(job.type)
        log.complete_job(job.id, worker)
    return found

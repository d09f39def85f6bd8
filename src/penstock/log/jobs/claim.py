"""Claim jobs: of the wanted types the highest priority first, then the oldest."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from penstock.core.batch import Event
from penstock.core.delivery import State
from penstock.core.event import check_name
from penstock.core.job import GROUP, PRIORITIES, Job, JobName, check_job_name, check_queue, name_of, settings_of
from penstock.core.lease import LeaseRow
from penstock.errors import InvalidInput
from penstock.log import checks, reap
from penstock.log.claim import Claims
from penstock.log.jobs import look
from penstock.log.jobs.held import Held, HeldJobs
from penstock.log.jobs.types import ensure_group
from penstock.log.lease import Lease
from penstock.log.transact import look as looking
from penstock.log.transact import transact
from penstock.stores.base import Row, Store, Transaction

_REAP_EVERY: Final = timedelta(seconds=1)
MOST_JOBS: Final = 1_000  # in one claim


class JobClaims:
    """Claims jobs for one open log, and remembers which it holds."""

    def __init__(self, store: Store, claims: Claims, held: HeldJobs) -> None:
        self._store = store
        self._claims = claims
        self._held = held
        self._reaped: datetime | None = None

    def claim(
        self, worker: Any, types: Any, queue: Any, lease_seconds: float | None, limit: Any, run: int | None = None
    ) -> list[Job]:
        """Claim up to `limit` jobs, each with a lease of its own."""
        checks.required_key(worker, "worker")
        if checks.count(limit, "limit") > MOST_JOBS:
            raise InvalidInput(f"limit is at most {MOST_JOBS:,} jobs, not {limit:,}.")
        streams = self.streams(types, queue)
        taken: list[Job] = []
        while len(taken) < limit:
            reaped = self._reap(streams)
            for row in self.due(streams):
                taken += self._take(row, worker, lease_seconds, limit - len(taken), run)
                if len(taken) >= limit:
                    break
            if taken or reaped or not self._reap(streams, now=True):
                break
        return taken

    def streams(self, types: Any, queue: Any) -> list[str]:
        """Return the streams that jobs of these types may be in; None is all types that ever had a job."""
        where = check_queue(queue)
        if types is None:
            return [*look.streams_of(self._store, where, None)]
        if isinstance(types, str) or not isinstance(types, Sequence):
            raise InvalidInput("types must be a list of job types.")
        names = [check_name(one, "type") for one in types]
        return [check_job_name(one, where, priority).stream for one in names for priority in PRIORITIES]

    def due(self, streams: Sequence[str]) -> list[Row]:
        """Return those of the streams that have a job to claim, in the order in which they are to be claimed from."""
        rows = looking(self._store, lambda tx: tx.rows("jobs.due", streams=list(streams), now=tx.now()))
        return sorted((row for row in rows if row.offset is not None and not row.paused), key=_rank)

    def _take(self, row: Row, worker: str, lease_seconds: float | None, limit: int, run: int | None) -> list[Job]:
        if not row.has_group:
            transact(self._store, lambda tx: ensure_group(tx, row.stream))
        taken: list[Job] = []
        while len(taken) < limit:
            lease = self._claims.claim(row.stream, GROUP, 1, 1, worker, lease_seconds, run)
            if not isinstance(lease, LeaseRow):
                break
            taken.append(self._job(lease))
        return taken

    def _job(self, row: LeaseRow) -> Job:
        lease = Lease(self._store, row, row.events or self._store.read_lease(row))
        (event,) = lease.events
        self._held.add(event.event_id, Held(row.id, row.token, row.claimed_by, event.offset, row.high))
        return job_of(event, lease)

    def _reap(self, streams: Sequence[str], *, now: bool = False) -> bool:
        """Take back expired jobs, once a second or `now`, so that they keep their place; whether any was."""
        at = looking(self._store, Transaction.now)
        if not now and self._reaped is not None and at - self._reaped < _REAP_EVERY:
            return False
        self._reaped = at
        return reap.reap(self._store, named=[(stream, GROUP) for stream in streams]) > 0


def _rank(row: Row) -> tuple[int, int]:
    name = name_of(row.stream)
    assert name is not None
    return -name.priority, row.offset


def job_of(event: Event, lease: Lease) -> Job:
    """Return a job as its worker gets it."""
    name = name_of(event.stream)
    assert isinstance(name, JobName)
    return Job(
        id=event.event_id,
        type=name.type,
        queue=name.queue,
        priority=name.priority,
        payload=event.payload,
        status=State.CLAIMED,
        attempts=event.attempts,
        max_attempts=settings_of(event.metadata or {}).get("max_attempts"),
        worker=lease.claimed_by,
        claimed_at=lease.row.claimed_at,
        heartbeat_at=lease.row.claimed_at,
        available_at=event.available_at,
        created_at=event.created_at,
        error=event.last_error,
        headers=event.headers,
        token=lease.token,
        expires_at=lease.expires_at,
        offset=event.offset,
    )

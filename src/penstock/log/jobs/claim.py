"""Claim jobs: of the wanted types the highest priority first, then the oldest."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from penstock.core.batch import Claimed, Event, Events
from penstock.core.columns import unpack
from penstock.core.delivery import State
from penstock.core.event import check_name
from penstock.core.job import GROUP, PRIORITIES, Job, JobName, check_job_name, check_queue, name_of, settings_of
from penstock.core.lease import Idle, LeaseRow, Passed, Settlement
from penstock.errors import InvalidInput
from penstock.log import checks, reap
from penstock.log.claim import Claims, claim_in
from penstock.log.claim_once import once
from penstock.log.jobs import look
from penstock.log.jobs.held import Held, HeldJobs
from penstock.log.jobs.types import ensure_group
from penstock.log.lease import Lease
from penstock.log.settle import settle_in
from penstock.log.transact import look as looking
from penstock.log.transact import repeat, transact
from penstock.stores.base import Row, Store, Transaction

_REAP_SECONDS: Final = 1.0
MOST_JOBS: Final = 1_000  # in one claim


class Due(NamedTuple):
    """`jobs.due`: a stream with a job to claim, now or later."""

    stream: str
    has_group: bool
    paused: bool
    offset: int | None  # of its first job that is due
    later_at: Any = None  # as the store has it


class JobClaims:
    """Claims jobs for one open log, and remembers which it holds."""

    def __init__(self, store: Store, claims: Claims, held: HeldJobs) -> None:
        self._store = store
        self._claims = claims
        self._held = held
        self._reaped: float | None = None  # when, by whatever clock

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

    def claim_once(
        self, principal: str, key: str, worker: Any, types: Any, queue: Any, lease_seconds: float | None, limit: Any
    ) -> list[Job]:
        """Like `claim`, once for each key of a principal: jobs of one stream, the most urgent, in one transaction."""
        checks.required_key(worker, "worker")
        if not 0 < checks.count(limit, "limit") <= MOST_JOBS:
            raise InvalidInput(f"limit is a number from 1 to {MOST_JOBS:,}.")
        streams = self.streams(types, queue)
        self._reap(streams)

        def take(tx: Transaction) -> Sequence[LeaseRow]:
            for row in _ranked(tx.rows("jobs.due", streams=streams, now=tx.now())):
                if not row.has_group:
                    ensure_group(tx, row.stream)
                whole, each = _claim_each_in(tx, row.stream, worker, lease_seconds, limit, None)
                if not isinstance(whole, Idle):
                    return each
            return ()

        request = [sorted(types) if types else None, queue, worker, lease_seconds, limit]
        found = once(self._store, principal, key, request, take)
        assert not isinstance(found, Idle)
        return [job for lease in found for job in self._jobs([lease], lease)]

    def idle(self, streams: Sequence[str]) -> Idle | None:
        """Return why a claim found nothing, and when to look again; None if it may find something now."""
        rows, idle = self._look(streams)
        return None if rows else idle

    def streams(self, types: Any, queue: Any) -> list[str]:
        """Return the streams that jobs of these types may be in; None is all types that ever had a job."""
        where = check_queue(queue)
        if types is None:
            return [*look.streams_of(self._store, where, None)]
        if isinstance(types, str) or not isinstance(types, Sequence):
            raise InvalidInput("types must be a list of job types.")
        names = [check_name(one, "type") for one in types]
        return [check_job_name(one, where, priority).stream for one in names for priority in PRIORITIES]

    def due(self, streams: Sequence[str]) -> list[Due]:
        """Return those of the streams that have a job to claim, in the order in which they are to be claimed from."""
        store = self._store
        rows = repeat(lambda: store.only("jobs.due", streams=list(streams), now=store.told_now))
        return _ranked([Due(*row) for row in rows])

    # --- for engines ---------------------------------------------------------------------------------------------

    def lease(self, streams: Sequence[str], limit: int, worker: str, run: int | None) -> list[Lease] | Idle:
        """Claim up to `limit` jobs of one stream, the most urgent, as one lease."""
        rows, idle = self._look(streams)
        for row in rows:
            self._ensure(row)
            found = self._claims.claim(row.stream, GROUP, limit, limit, worker, None, run)
            if isinstance(found, LeaseRow):
                return [Lease(self._store, found, found.events or self._store.read_lease(found))]
            idle = _sooner(idle, found)
        return idle

    def leases(self, streams: Sequence[str], limit: int, worker: str, run: int | None) -> list[Lease] | Idle:
        """Claim up to `limit` jobs of one stream, the most urgent, each as a lease of its own."""
        rows, idle = self._look(streams)
        for row in rows:
            self._ensure(row)
            whole, each = self._claim_each(row.stream, worker, None, limit, run)
            if isinstance(whole, Idle):
                idle = _sooner(idle, whole)
            else:
                columns = whole.events or self._store.read_lease(whole)
                parts = [unpack(*columns.pack(place, place + 1)) for place in range(len(each))]
                return [Lease(self._store, one, part) for one, part in zip(each, parts, strict=True)]
        return idle

    def _look(self, streams: Sequence[str]) -> tuple[list[Row], Idle]:
        """Return the streams with a job to claim, and what to say if none of them can be claimed from.

        It says how far the log was before the look: whatever commits during the look then lies beyond.
        """
        horizon = looking(self._store, lambda tx: tx.horizon())

        def work(tx: Transaction) -> tuple[list[Row], Idle]:
            now = tx.now()
            rows = tx.rows("jobs.due", streams=list(streams), now=now)
            later = min((row.later_at for row in rows if row.later_at is not None), default=None)
            seconds = None if later is None else max(0.0, (later - now).total_seconds())
            return _ranked(rows), Idle(later, horizon=horizon, end=horizon, seconds=seconds)

        return looking(self._store, work)

    def _ensure(self, row: Any) -> None:
        if not row.has_group:
            transact(self._store, lambda tx: ensure_group(tx, row.stream))

    # --- one by one ----------------------------------------------------------------------------------------------

    def _take(self, row: Any, worker: str, lease_seconds: float | None, limit: int, run: int | None) -> list[Job]:
        self._ensure(row)
        if limit == 1:
            lease = self._claims.claim(row.stream, GROUP, 1, 1, worker, lease_seconds, run)
            return self._jobs([lease], lease) if isinstance(lease, LeaseRow) else []
        taken: list[Job] = []
        while len(taken) < limit:  # rows first, then ranges
            whole, each = self._claim_each(row.stream, worker, lease_seconds, limit - len(taken), run)
            if isinstance(whole, Idle):
                break
            taken += self._jobs(each, whole)
        return taken

    def _claim_each(
        self, stream: str, worker: str, lease_seconds: float | None, limit: int, run: int | None
    ) -> tuple[LeaseRow | Idle, Sequence[LeaseRow]]:
        """Claim jobs as one lease, and keep each of them in a lease of its own, in one transaction."""

        return transact(self._store, lambda tx: _claim_each_in(tx, stream, worker, lease_seconds, limit, run))

    def _jobs(self, leases: Sequence[LeaseRow], whole: LeaseRow) -> list[Job]:
        """Return the jobs of leases of one event each that are, together, the events of a whole one."""
        columns = whole.events or self._store.read_lease(whole)
        claim = Claimed(whole.claimed_at, whole.claimed_by, whole.attempts, whole.replay, whole.earlier)
        jobs = []
        for event, lease in zip(Events(columns, whole.stream, claim), leases, strict=True):
            self._held.add(event.event_id, Held(lease.id, lease.token, lease.claimed_by, event.offset, lease.high))
            jobs.append(job_of(event, lease))
        return jobs

    def _reap(self, streams: Sequence[str], *, now: bool = False) -> bool:
        """Take back expired jobs, once a second or `now`, so that they keep their place; whether any was."""
        told = self._store.told_now
        at = time.monotonic() if told is None else told.timestamp()
        if not now and self._reaped is not None and 0 <= at - self._reaped < _REAP_SECONDS:
            return False
        self._reaped = at
        return reap.reap(self._store, named=[(stream, GROUP) for stream in streams]) > 0


def _sooner(idle: Idle, other: Idle) -> Idle:
    """Return when to look again: the sooner of two."""
    if other.seconds is None or (idle.seconds is not None and idle.seconds <= other.seconds):
        return idle
    return replace(idle, until=other.until, seconds=other.seconds)


def _claim_each_in(
    tx: Transaction, stream: str, worker: str, lease_seconds: float | None, limit: int, run: int | None
) -> tuple[LeaseRow | Idle, Sequence[LeaseRow]]:
    while isinstance(found := claim_in(tx, stream, GROUP, limit, worker, lease_seconds, run=run), Passed):
        pass
    if isinstance(found, Idle):
        return found, ()
    if found.members == 1:
        return found, [found]
    everything = Settlement(upto=found.high, keep=frozenset(_offsets(tx, found)))
    return found, settle_in(tx, found.id, found.token, everything).kept


def _ranked(rows: Sequence[Any]) -> list[Any]:
    return sorted((row for row in rows if row.offset is not None and not row.paused), key=_rank)


def _rank(row: Any) -> tuple[int, int]:
    name = name_of(row.stream)
    assert name is not None
    return -name.priority, row.offset


def _offsets(tx: Transaction, lease: LeaseRow) -> Sequence[int]:
    if lease.offsets is not None:
        return lease.offsets
    rows = tx.rows("jobs.next", stream=lease.stream, after=lease.low, limit=lease.members + len(lease.holes))
    return [int(row.offset) for row in rows if row.offset not in lease.holes]


def job_of(event: Event, lease: LeaseRow) -> Job:
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
        claimed_at=lease.claimed_at,
        heartbeat_at=lease.claimed_at,
        available_at=event.available_at,
        created_at=event.created_at,
        error=event.last_error,
        headers=event.headers,
        token=lease.token,
        expires_at=lease.expires_at,
        offset=event.offset,
    )

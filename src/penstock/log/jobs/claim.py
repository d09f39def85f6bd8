"""Claim jobs: of the wanted types the highest priority first, then the oldest."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, NamedTuple

from penstock.core.batch import Claimed, Event, Events
from penstock.core.columns import unpack
from penstock.core.delivery import State
from penstock.core.job import GROUP, Job, JobName, check_queue, name_of, settings_of
from penstock.core.lease import Idle, LeaseRow, Passed, Settlement
from penstock.core.limits import LEASE_SECONDS_MOST, READ_WITH_CLAIM
from penstock.errors import InvalidInput
from penstock.log import checks, reap
from penstock.log.claim import Claims, claim_in, lease_at_once
from penstock.log.claim_lane import TOKEN_BITS
from penstock.log.claim_once import once
from penstock.log.jobs import look
from penstock.log.jobs.held import Held, HeldJobs
from penstock.log.jobs.types import ensure_group
from penstock.log.jobs.wanted import Wanted, WantedTypes
from penstock.log.lease import Lease
from penstock.log.settle import settle_in
from penstock.log.transact import look as looking
from penstock.log.transact import repeat, transact
from penstock.stores.base import Store, Transaction

_REAP_SECONDS: Final = 1.0
_LOOK_COLUMNS: Final = 7  # of `jobs.claim_first`, up to the lease
MOST_JOBS: Final = 1_000  # in one claim


class Due(NamedTuple):
    """`jobs.due`: a stream with a job to claim, now or later; the first row has only the last two columns."""

    stream: str
    has_group: bool
    paused: bool
    offset: int | None  # of its first job that is due
    later_at: datetime | None
    horizon: int
    looked_at: datetime


class JobClaims:
    """Claims jobs for one open log, and remembers which it holds."""

    def __init__(self, store: Store, claims: Claims, held: HeldJobs) -> None:
        self._store = store
        self._claims = claims
        self._held = held
        self._reaped: float | None = None  # when, by whatever clock
        self._wanted = WantedTypes()

    def claim(
        self, worker: Any, types: Any, queue: Any, lease_seconds: float | None, limit: Any, run: int | None = None
    ) -> list[Job]:
        """Claim up to `limit` jobs, each with a lease of its own."""
        checks.required_key(worker, "worker")
        if checks.count(limit, "limit") > MOST_JOBS:
            raise InvalidInput(f"limit is at most {MOST_JOBS:,} jobs, not {limit:,}.")
        if lease_seconds is not None:
            checks.seconds(lease_seconds, "lease_seconds", LEASE_SECONDS_MOST)
        wanted = self.wanted(types, queue)
        taken: list[Job] = []
        while len(taken) < limit:
            reaped = self._reap(wanted)
            quick = self._at_once(wanted, 1, worker, lease_seconds, run) if limit == 1 else None
            if isinstance(quick, LeaseRow):
                return self._jobs([quick], quick)
            for row in self.look(wanted)[0] if quick is None else ():
                taken += self._take(wanted, row, worker, lease_seconds, limit - len(taken), run)
                if len(taken) >= limit:
                    break
            if taken or reaped or not self._reap(wanted, now=True):
                break
        return taken

    def claim_once(
        self, principal: str, key: str, worker: Any, types: Any, queue: Any, lease_seconds: float | None, limit: Any
    ) -> list[Job]:
        """Like `claim`, once for each key of a principal: jobs of one stream, the most urgent, in one transaction."""
        checks.required_key(worker, "worker")
        if not 0 < checks.count(limit, "limit") <= MOST_JOBS:
            raise InvalidInput(f"limit is a number from 1 to {MOST_JOBS:,}.")
        wanted = self.wanted(types, queue)
        self._reap(wanted)

        def take(tx: Transaction) -> Sequence[LeaseRow]:
            first, *rows = tx.rows("jobs.due", **_asked(wanted, tx.now()))
            wanted.found((row.stream for row in rows), first.horizon)
            for row in _ranked(rows):
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

    def idle(self, types: Any, queue: Any) -> Idle | None:
        """Return why a claim found nothing, and when to look again; None if it may find something now."""
        rows, idle = self.look(self.wanted(types, queue))
        return None if rows else idle

    def wanted(self, types: Any, queue: Any) -> Wanted:
        """Return what a worker asks for; None is all types that ever had a job."""
        if types is None:
            where = check_queue(queue)
            return Wanted(where, (), {*look.streams_of(self._store, where, None)})
        return self._wanted.of(types, queue)

    # --- for engines ---------------------------------------------------------------------------------------------

    def lease(self, wanted: Wanted, limit: int, worker: str, run: int | None) -> list[Lease] | Idle:
        """Claim up to `limit` jobs of one stream, the most urgent, as one lease."""
        small = min(limit, READ_WITH_CLAIM)
        at_once = self._at_once(wanted, small if wanted.trickles else limit, worker, None, run)
        found = at_once or self._one_lease(wanted, limit, worker, run)
        wanted.trickles = isinstance(found, Idle) or found.members < small
        # A plain range that ends early has all that its stream had, and no row waits there.
        took_all = at_once is not None and wanted.trickles and len(wanted.streams) == 1
        upto = wanted.searched_upto or 0
        wanted.rest = Idle(None, horizon=upto, end=upto) if took_all else None
        if isinstance(found, Idle):
            return found
        return [Lease(self._store, found, found.events or self._store.read_lease(found))]

    def _one_lease(self, wanted: Wanted, limit: int, worker: str, run: int | None) -> LeaseRow | Idle:
        rows, idle = self.look(wanted)
        for row in rows:
            self._ensure(row)
            found = self._claims.claim(row.stream, GROUP, limit, limit, worker, None, run)
            if isinstance(found, LeaseRow):
                wanted.simple = found.simple
                return found
            idle = _sooner(idle, found)
        return idle

    def _at_once(
        self, wanted: Wanted, limit: int, worker: str, lease_seconds: float | None, run: int | None
    ) -> LeaseRow | Idle | None:
        """Look and claim in one statement; None if this needs a look and a full claim."""
        if not wanted.simple or not self._store.claims_at_once or limit > READ_WITH_CLAIM:
            return None
        asked = _asked(wanted, self._store.told_now) | {
            "claimed_by": worker,
            "seconds": lease_seconds,
            "most": limit,
            "secret": secrets.randbits(TOKEN_BITS),
            "run": run,
        }
        rows = repeat(lambda: self._store.only("jobs.claim_first", **asked))
        told, stream, fresh, searched, later, looked_at, lease = rows[0][:_LOOK_COLUMNS]
        wanted.found(fresh or (), searched)
        if stream is None:
            return _idle(searched, later, looked_at)
        if lease is None:
            wanted.simple = False
            return None
        return lease_at_once([(told, *row[_LOOK_COLUMNS - 1 :]) for row in rows], stream, GROUP, limit, worker)

    def leases(self, wanted: Wanted, limit: int, worker: str, run: int | None) -> list[Lease] | Idle:
        """Claim up to `limit` jobs of one stream, the most urgent, each as a lease of its own."""
        rows, idle = self.look(wanted)
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

    def look(self, wanted: Wanted) -> tuple[list[Due], Idle]:
        """Return the streams with a job to claim, the most urgent first, and what to say if none can be claimed from.

        It says how far the log was before the look: whatever commits during the look then lies beyond.
        """
        store = self._store
        if store.claims_at_once:
            told = repeat(lambda: store.only("jobs.due", **_asked(wanted, store.told_now)))
            rows = [Due(*row) for row in told]
        else:
            rows = looking(store, lambda tx: tx.rows("jobs.due", **_asked(wanted, tx.now())))
        first, rows = rows[0], rows[1:]
        wanted.found((row.stream for row in rows), first.horizon)
        later = min((row.later_at for row in rows if row.later_at is not None), default=None)
        return _ranked(rows), _idle(first.horizon, later, first.looked_at)

    def _ensure(self, row: Any) -> None:
        if not row.has_group:
            transact(self._store, lambda tx: ensure_group(tx, row.stream))

    # --- one by one ----------------------------------------------------------------------------------------------

    def _take(
        self, wanted: Wanted, row: Any, worker: str, lease_seconds: float | None, limit: int, run: int | None
    ) -> list[Job]:
        self._ensure(row)
        if limit == 1:
            lease = self._claims.claim(row.stream, GROUP, 1, 1, worker, lease_seconds, run)
            if not isinstance(lease, LeaseRow):
                return []
            wanted.simple = lease.simple
            return self._jobs([lease], lease)
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

    def _reap(self, wanted: Wanted, *, now: bool = False) -> bool:
        """Take back expired jobs, once a second or `now`, so that they keep their place; whether any was."""
        told = self._store.told_now
        at = time.monotonic() if told is None else told.timestamp()
        if not now and self._reaped is not None and 0 <= at - self._reaped < _REAP_SECONDS:
            return False
        self._reaped = at
        if not wanted.streams:  # not looked for yet
            self.look(wanted)
        return reap.reap(self._store, named=[(stream, GROUP) for stream in wanted.streams]) > 0


def _idle(horizon: int | None, later: datetime | None, now: datetime) -> Idle:
    """Return what to say when nothing is due: how far the log was before the look, and when the next job will be."""
    upto = horizon or 0  # unknown
    seconds = None if later is None else max(0.0, (later - now).total_seconds())
    return Idle(later, horizon=upto, end=upto, seconds=seconds)


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


def _asked(wanted: Wanted, now: datetime | None) -> dict[str, Any]:
    return {
        "known": [*wanted.streams],
        "queue": wanted.queue,
        "types": [*wanted.types],
        "since": wanted.since(),
        "now": now,
    }


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

"""The jobs that one open log has claimed, and proof of who holds a job."""

from __future__ import annotations

import uuid
from collections import OrderedDict
from typing import Any, Final, NamedTuple

from penstock.core.event import parse_event_id
from penstock.core.job import GROUP
from penstock.errors import InvalidInput, LeaseLost
from penstock.log import checks
from penstock.log.claim_lane import TOKEN_BITS
from penstock.log.jobs import look
from penstock.log.transact import look as looking
from penstock.stores.base import Store, Transaction
from penstock.stores.rows import LeaseRecord

_MOST: Final = 100_000


class Held(NamedTuple):
    """A job in the hands of a worker: a lease with one member."""

    lease: int
    token: int
    worker: str
    offset: int
    high: int | None  # None: its delivery has a row


class HeldJobs:
    """What this log has claimed: only here is a worker's name believed without its token."""

    def __init__(self) -> None:
        self._held: OrderedDict[uuid.UUID, Held] = OrderedDict()

    def add(self, job_id: uuid.UUID, held: Held) -> None:
        """Remember a job that was claimed."""
        self._held[job_id] = held
        while len(self._held) > _MOST:
            self._held.popitem(last=False)

    def forget(self, job_id: uuid.UUID, token: int) -> None:
        """Forget a job that this log does not hold any more."""
        known = self._held.get(job_id)
        if known is not None and known.token == token:
            del self._held[job_id]

    def proof(self, store: Store, job_id: Any, worker: Any, token: Any) -> tuple[uuid.UUID, Held]:
        """Return the lease with which a worker holds a job; `LeaseLost` if it does not."""
        name, one = checks.required_key(worker, "worker"), parse_event_id(job_id)
        known = self._held.get(one)
        if token is None:
            if known is None or known.worker != name:
                raise LeaseLost(f"{name} does not hold the job {one} here; give the token of its claim.")
            return one, known
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < 2**63:
            raise InvalidInput("token must be the number that the claim returned.")
        if known is None or known.token != token:
            known = looking(store, lambda tx: _stored(tx, one, token))
        if known.worker != name:
            raise LeaseLost(f"{name} does not hold the job {one}.")
        return one, known


def _stored(tx: Transaction, job_id: uuid.UUID, token: int) -> Held:
    """Return what a token proves."""
    stream, offset = look.find(tx, job_id)
    lease: LeaseRecord | None = tx.one("lease.find", id=token >> TOKEN_BITS)
    if (
        lease is None
        or lease.token != token
        or (lease.stream, lease.group_name) != (stream, GROUP)
        or lease.members != 1
    ):
        raise LeaseLost(f"The job {job_id} is not held with this token.")
    held = lease.offsets[0] if lease.offsets is not None else _member(tx, stream, lease)
    if held != offset:
        raise LeaseLost(f"The job {job_id} is not held with this token.")
    return Held(lease.id, token, lease.claimed_by, offset, lease.high if lease.offsets is None else None)


def _member(tx: Transaction, stream: str, lease: LeaseRecord) -> int | None:
    rows = tx.rows("jobs.next", stream=stream, after=lease.low, limit=len(lease.holes) + 1)
    return next((int(row.offset) for row in rows if row.offset not in lease.holes), None)

"""Lock, extend or release a lease."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from penstock.core.delivery import Reason
from penstock.core.group import Group
from penstock.core.lease import LeaseOutcome, Settled
from penstock.errors import LeaseLost
from penstock.log import cancel, groups
from penstock.log.lease_end import give_back_all
from penstock.log.outcomes import give_back
from penstock.log.transact import transact
from penstock.stores.base import Store, Transaction
from penstock.stores.rows import GroupRow, LeaseRecord


def holder(tx: Transaction, lease_id: int, token: int) -> tuple[LeaseRecord, Group, datetime]:
    """Lock an open lease; return it with its group and the time. Raises `LeaseLost` for anyone but its holder."""
    lease, group = locked(tx, lease_id, token)
    return lease, group, check_open(tx, lease)


def check_open(tx: Transaction, lease: LeaseRecord) -> datetime:
    """Return the time; raise `LeaseLost` if the lease has ended or expired."""
    now = tx.now()
    if lease.outcome is not None:
        raise LeaseLost(f"Lease {lease.id} has ended: {lease.outcome}.")
    if lease.expires_at <= now:
        raise LeaseLost(f"Lease {lease.id} expired at {lease.expires_at.isoformat()}.")
    return now


def locked(tx: Transaction, lease_id: int, token: int) -> tuple[LeaseRecord, Group]:
    """Lock a lease, open or not; return it with its group. Raises `LeaseLost` for another token."""
    of_lease = {"stream": None, "group_name": None, "lease": lease_id}
    leases: list[LeaseRecord]
    found: list[GroupRow]
    leases, found = tx.together(("lease.lock", {"id": lease_id}), ("group.find", of_lease))
    if not leases or leases[0].token != token:
        raise LeaseLost(f"Lease {lease_id} is not held with this token.")
    assert found, "a lease has a group"
    return leases[0], groups.of(found[0])


class Extended(NamedTuple):
    """The answer to an extension."""

    expires_at: datetime
    wanted: str | None  # what the lease's run should do: run, quiet or stop; None without a run
    cancelled: Mapping[int, str]  # offsets of events that should end, each with its error


def extend(store: Store, lease_id: int, token: int, seconds: float | None) -> Extended:
    """Extend the lease to `seconds` from now (default: the group's `lease_seconds`)."""
    return transact(store, lambda tx: extend_in(tx, lease_id, token, seconds))


def extend_in(tx: Transaction, lease_id: int, token: int, seconds: float | None) -> Extended:
    """Extend the lease in the caller's transaction."""
    _, group, now = holder(tx, lease_id, token)
    expires_at = now + timedelta(seconds=seconds or group.lease_seconds)
    row = tx.one("lease.extend", id=lease_id, expires_at=expires_at, now=now)
    assert row is not None, "a locked lease is there"
    return Extended(expires_at, row.wanted, cancel.told(tx, lease_id) if row.cancels else {})


def release(store: Store, lease_id: int, token: int) -> Settled:
    """Give everything back, due at once and without counting a failure; a range comes back as a range."""

    def work(tx: Transaction) -> Settled:
        lease, group, now = holder(tx, lease_id, token)
        give_back(tx, lease, group, now, Reason.RELEASED)
        answer = give_back_all(tx, lease, LeaseOutcome.RELEASED, now)
        tx.wake()
        return answer

    return transact(store, work)

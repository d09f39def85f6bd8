"""Keep: a settle reports what is finished, and the events that still run go on, each in a lease of its own."""

from __future__ import annotations

from collections.abc import Sequence, Set
from datetime import datetime

from penstock.core.group import Group
from penstock.core.lease import LeaseId, LeaseRow, Token
from penstock.errors import KeepNeedsNoKeys, LeaseLost
from penstock.log import groups, single_leases
from penstock.log.single_leases import Single, Terms
from penstock.stores.base import Transaction
from penstock.stores.rows import LeaseRecord


def lock_group_of(tx: Transaction, lease_id: int) -> None:
    """Lock the group of a lease: leases are opened under it, and it is locked before any lease."""
    lease: LeaseRecord | None = tx.one("lease.find", id=lease_id)
    if lease is not None:  # otherwise the settle raises `LeaseLost`
        group = groups.locked(tx, lease.stream, lease.group_name)
        if group.lanes > 1 or group.exclusive:
            raise KeepNeedsNoKeys(f"{lease.stream}/{lease.group_name} has keys.")


def open_kept(tx: Transaction, group: Group, lease: LeaseRecord, offsets: Set[int], now: datetime) -> list[LeaseRow]:
    """Open a lease for each kept event of a lease that ends: the same attempt, with a token of its own."""
    rows = lease.offsets is not None
    singles = [Single(one, is_row=rows) for one in sorted(offsets)]
    terms = Terms(
        lease.claimed_by,
        lease.claimed_at,
        now + (lease.expires_at - (lease.heartbeat_at or lease.claimed_at)),
        lease.binding,
        lease.attempts,
        lease.replay,
        run=lease.run,
        kept_from=lease.id,
        kept_at=now,
    )
    open_ids = [row.id for row in tx.rows("lease.open_ids", group_id=group.group_id) if row.id != lease.id]
    kept = single_leases.open_each(tx, group, singles, terms, open_ids)
    if rows:
        moves = [{"offset": single.offset, "lease": one.id} for single, one in zip(singles, kept, strict=True)]
        tx.run("lease.move_rows", group_id=group.group_id, lease=lease.id, rows=moves)
    return kept


def stored(tx: Transaction, ids: Sequence[int]) -> list[LeaseRow]:
    """Return leases that a settle opened, when it is repeated."""
    found: list[LeaseRecord] = [row for one in ids for row in tx.rows("lease.find", id=one)]
    return [row_of(one) for one in found]


def find(tx: Transaction, lease_id: int, token: int | None = None) -> LeaseRecord:
    """Return a lease, open or not; `LeaseLost` if there is none, or if it has another token."""
    lease: LeaseRecord | None = tx.one("lease.find", id=lease_id)
    if lease is None or token not in (None, lease.token):
        raise LeaseLost(f"Lease {lease_id} is not held with this token.")
    return lease


def row_of(one: LeaseRecord) -> LeaseRow:
    """Return a lease as its holder knows it."""
    return LeaseRow(
        LeaseId(one.id),
        Token(one.token),
        one.stream,
        one.group_name,
        one.group_id,
        lane=one.lane,
        lanes=one.lanes,
        binding=one.binding,
        low=one.low,
        high=one.high,
        holes=one.holes,
        offsets=one.offsets,
        members=one.members,
        attempts=one.attempts,
        replay=one.replay,
        claimed_by=one.claimed_by,
        claimed_at=one.claimed_at,
        expires_at=one.expires_at,
    )

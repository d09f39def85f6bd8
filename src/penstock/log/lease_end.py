"""The one UPDATE that ends a lease: its outcome, and how many members had each outcome."""

from __future__ import annotations

from datetime import datetime

from penstock.core.lease import Failure, LeaseOutcome, Settled, error_columns
from penstock.stores.base import Transaction
from penstock.stores.rows import LeaseRecord


def end_lease(
    tx: Transaction,
    lease: LeaseRecord,
    outcome: LeaseOutcome,
    counts: Settled,
    now: datetime,
    *,
    upto: int | None,
    digest: bytes | None = None,
    because: Failure | None = None,
) -> None:
    """End a lease that this transaction has locked.

    Only a settle may be repeated, so only its answer is stored. `because` is the error of the part of a range that
    comes back.
    """
    numbers = [counts.published, counts.failed, counts.dead, counts.released]
    tx.later(
        "lease.end",
        id=lease.id,
        outcome=outcome,
        upto=upto,
        digest=digest,
        answer=[*numbers, *(one.id for one in counts.kept)] if outcome is LeaseOutcome.SETTLED else None,
        published=counts.published,
        failed=counts.failed,
        dead=counts.dead,
        released=counts.released,
        now=now,
        **error_columns(because),
    )


def give_back_all(tx: Transaction, lease: LeaseRecord, outcome: LeaseOutcome, now: datetime) -> Settled:
    """End a lease with all its members released."""
    counts = Settled(0, 0, 0, lease.members)
    end_lease(tx, lease, outcome, counts, now, upto=lease.low)
    return counts

"""The one UPDATE that ends a lease: its outcome, and how many of its members came to which end."""

from __future__ import annotations

from datetime import datetime

from penstock.core.lease import Outcome, Settled
from penstock.stores.base import Row, Transaction


def end_lease(
    tx: Transaction,
    lease: Row,
    outcome: Outcome,
    counts: Settled,
    now: datetime,
    *,
    upto: int | None,
    digest: bytes | None = None,
) -> None:
    """End a lease that this transaction has locked. Only a settle is answered again, so only a settle has an answer."""
    numbers = [counts.published, counts.failed, counts.dead, counts.released]
    tx.run(
        "lease.end",
        id=lease.id,
        outcome=outcome,
        upto=upto,
        digest=digest,
        answer=numbers if outcome is Outcome.SETTLED else None,
        published=counts.published,
        failed=counts.failed,
        dead=counts.dead,
        released=counts.released,
        now=now,
    )


def give_back_all(tx: Transaction, lease: Row, outcome: Outcome, now: datetime) -> Settled:
    """End a lease of which nothing was done; everything in it goes back."""
    counts = Settled(0, 0, 0, lease.members)
    end_lease(tx, lease, outcome, counts, now, upto=lease.low)
    return counts

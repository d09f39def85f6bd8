"""Attempts of earlier lives, for a rewound range. Never needed in a first life."""

from __future__ import annotations

from collections import defaultdict

from penstock.core.group import Group
from penstock.core.lease import Steps
from penstock.stores.base import Transaction
from penstock.stores.rows import RangeBeforeRow, RowBeforeRow


def earlier(tx: Transaction, group: Group, lane: int, low: int, high: int, now_in_this_life: int) -> Steps:
    """Return how often the events of (low, high] were claimed before this life, as steps.

    Claims of ranges are in leases, all others in the attempt log. A range changes the number only where it begins and
    ends, so the cost grows with the claims and not with the events.
    """
    changes: dict[int, int] = defaultdict(int)
    where = {"group_id": group.group_id, "low": low, "high": high}
    ranges: list[RangeBeforeRow] = tx.rows("claim.ranges_before", lane=lane, lanes=group.lanes, **where)
    for lease in ranges:
        changes[max(lease.low, low) + 1] += 1
        changes[lease.high + 1] -= 1
        for hole in lease.holes:  # an event with a row of its own
            if max(lease.low, low) < hole <= high:
                changes[hole] -= 1
                changes[hole + 1] += 1
    rows: list[RowBeforeRow] = tx.rows("claim.rows_before", **where)
    for row in rows:
        changes[row.offset] += row.claims
        changes[row.offset + 1] -= row.claims
    steps: list[tuple[int, int]] = []
    count = -now_in_this_life
    for offset in sorted(changes):
        if changes[offset] and offset <= high:
            count += changes[offset]
            steps.append((offset, count))
    return tuple(steps)

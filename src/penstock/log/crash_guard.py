"""The crash-loop guard: a deployment that crashes on every event must not turn all of them into dead letters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from penstock.core.group import Group
from penstock.core.lease import DEATHS
from penstock.core.limits import SOLO_DEATHS
from penstock.log import audit
from penstock.stores.base import Transaction
from penstock.stores.rows import DeathRow


def count_deaths(rows: Sequence[DeathRow]) -> list[int]:
    """Return the leases that count as deaths, newest first.

    Of expired leases that overlapped in time only one counts: a host that loses power with ten leases is one death.
    """
    counted: list[int] = []
    begun: datetime | None = None  # the claim of the last expired lease that was counted
    for row in rows:
        if row.expired and begun is not None and row.expires_at > begun:
            continue
        if row.expired:
            begun = row.claimed_at
        counted.append(row.lease)
    return counted


def watch(tx: Transaction, group: Group, codes: Iterable[str | None], by: str) -> None:
    """Pause the group if its last deaths, of different events, had no success between them (or after a resume)."""
    if group.paused or DEATHS.isdisjoint(codes):
        return
    counted = count_deaths(tx.rows("guard.deaths", group_id=group.group_id, codes=sorted(DEATHS), most=SOLO_DEATHS))
    if len(counted) < SOLO_DEATHS:
        return
    since = min(counted[:SOLO_DEATHS])
    if tx.one("guard.success", group_id=group.group_id, since=since) is not None:
        return
    reason = f"crash_loop: {SOLO_DEATHS} events in a row killed their process, the last one held by {by}"
    tx.run("group.pause", group_id=group.group_id, paused=True, reason=reason)
    audit.record_for(tx, by, "pause", group, None, {"reason": reason})

"""The crash-loop guard: a deployment that kills its process on every message must not bury the log."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.core.lease import DEATHS
from penstock.core.limits import SOLO_DEATHS
from penstock.stores import groups
from penstock.stores.base import Transaction
from penstock.stores.groups import Group


def watch(tx: Transaction, group: Group, codes: Iterable[str | None], by: str) -> None:
    """Pause the group if the last deaths, of different events, had no success between them (or after a resume)."""
    if group.paused or DEATHS.isdisjoint(codes):
        return
    row = tx.one("guard.deaths", group_id=group.group_id, codes=sorted(DEATHS), most=SOLO_DEATHS)
    assert row is not None
    if row.deaths < SOLO_DEATHS or tx.one("guard.success", group_id=group.group_id, since=row.since) is not None:
        return
    reason = f"crash_loop: {SOLO_DEATHS} events in a row took their process down, the last one held by {by}"
    tx.run("group.pause", group_id=group.group_id, paused=True, reason=reason)
    groups.audit(tx, by, "pause", group, None, {"reason": reason})

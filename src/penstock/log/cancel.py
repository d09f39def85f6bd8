"""Cancel: a waiting delivery is given up at once, the holder of a claimed one is told with its next heartbeat.

A request stays until its delivery has ended. What comes back unfinished is given up with the next reap.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.core.delivery import State
from penstock.core.event import check_text
from penstock.core.group import Group
from penstock.core.job import CANCELLED
from penstock.errors import IllegalTransition
from penstock.log import audit, checks, groups, kill, waiting
from penstock.log.selection import Moved, ids_of
from penstock.log.transact import transact
from penstock.stores.base import Row, Store, Transaction


@dataclass(frozen=True, slots=True)
class Cancelled(Moved):
    """How many deliveries were cancelled. Those that are `running` end later, or succeed before they are told."""

    running: int = 0


def cancel(
    store: Store, stream: str, group: str, event_ids: Iterable[Any], reason: str, *, dry_run: bool, by: str | None
) -> Cancelled:
    """Cancel deliveries in one transaction: all of them or none."""
    ids, why, author = ids_of(event_ids), check_text(reason, "reason") or CANCELLED, checks.author(by)

    def work(tx: Transaction) -> Cancelled:
        known = groups.locked(tx, stream, group)
        found = waiting.find_all(tx, known, ids)
        for row in found:
            if row.state not in (State.PENDING, State.CLAIMED):
                raise IllegalTransition(f"{row.event_id} is {row.state}, and cannot be cancelled.")
        running = [row.offset for row in found if row.state == State.CLAIMED]
        if dry_run or not found:
            return Cancelled(len(found), dry_run, len(running))
        _give_up(tx, known, [row for row in found if row.state == State.PENDING], why, author)
        ask(tx, known, running, why, author)
        detail = {"reason": why, "event_ids": [str(one) for one in ids]}
        audit.record_for(tx, author, "cancel", known, len(found), detail)
        return Cancelled(len(found), dry_run, len(running))

    return transact(store, work)


def ask(tx: Transaction, group: Group, offsets: Sequence[int], why: str, by: str) -> None:
    """Ask for the end of claimed deliveries of a locked group."""
    now = tx.now()
    if group.of_jobs:  # their workers look there
        for offset in offsets:
            tx.run("jobs.ask_to_cancel", offset=offset, by=by, now=now)
    if offsets:
        tx.run("cancel.ask", group_id=group.group_id, offsets=list(offsets), reason=why, by=by, now=now)


def _give_up(tx: Transaction, group: Group, found: Sequence[Row], why: str, by: str) -> None:
    if found:
        offsets = kill.bury(tx, group, found, why, by)
        tx.run("jobs.name_reason", group_id=group.group_id, offsets=offsets, reason=CANCELLED)


def told(tx: Transaction, lease_id: int) -> dict[int, str]:
    """Return the offsets in a lease that are to end, each with the error of its delivery."""
    rows = tx.rows("cancel.of_lease", id=lease_id)
    return {row.offset: f"{CANCELLED} by {row.by}: {row.reason}" for row in rows}


def requested_groups(tx: Transaction, named: Sequence[tuple[str, str]] | None) -> list[tuple[str, str]]:
    """Return stream and name of the groups (of these, or of all) that have requests."""
    found = [(row.stream, row.group_name) for row in tx.rows("cancel.groups")]
    return found if named is None else [one for one in found if one in named]


def answer(tx: Transaction, group: Group) -> None:
    """Give up what waits although it was cancelled, and drop requests whose delivery has ended. The group is locked."""
    asked = {row.offset: row for row in tx.rows("cancel.asked", group_id=group.group_id)}
    if not asked:
        return
    ids = [row.event_id for row in asked.values() if row.event_id is not None]
    found = {row.offset: row for row in tx.rows("operate.find", group_id=group.group_id, stream=group.stream, ids=ids)}
    for offset, request in asked.items():
        if offset in found and found[offset].state == State.PENDING:
            _give_up(tx, group, [found[offset]], request.reason, request.by)
    over = [offset for offset in asked if offset not in found or found[offset].state != State.CLAIMED]
    if over:
        tx.run("cancel.answered", group_id=group.group_id, offsets=over)


def answer_group(tx: Transaction, stream: str, group_name: str) -> None:
    """Answer the requests of a group that is not locked yet."""
    answer(tx, groups.locked(tx, stream, group_name))

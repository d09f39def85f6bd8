"""Repair a log after a restore, a failover or a logical switch-over, so that it can be written again."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from penstock.core.delivery import Reason
from penstock.core.lease import LeaseOutcome
from penstock.core.limits import RUN_LOST_SECONDS
from penstock.log import audit, checks, groups
from penstock.log.lease_end import give_back_all
from penstock.log.outcomes import give_back
from penstock.log.transact import transact
from penstock.stores.base import Store, Transaction
from penstock.stores.rows import LeaseRecord


@dataclass(frozen=True, slots=True)
class Repaired:
    """What a repair changed."""

    moved: bool  # the log was a copy from another server
    sequences: tuple[str, ...]  # raised above what is stored
    leases: int  # ended
    indexes: tuple[str, ...] = ()  # created again
    runs: int = 0  # lost ones that were closed


def repair(store: Store, by: str | None) -> Repaired:
    """Raise every sequence above what is stored, end every open lease, mend indexes, and close lost runs.

    The holder of a restored lease may no longer exist, or may have a token from another history. Its events are due at
    once, without a failure. Stop the workers first: their leases end, too, and their work is repeated.
    """
    author = checks.author(by)
    moved = store.make_home()
    mended = tuple(store.mend_indexes())
    raised = tuple(transact(store, _raise))
    ended = 0
    for group in groups.listed(store, None):
        ended += transact(store, partial(_end_leases, stream=group.stream, group_name=group.group_name, by=author))
    return Repaired(moved, raised, ended, mended, transact(store, _close_lost_runs))


def _close_lost_runs(tx: Transaction) -> int:
    now = tx.now()
    rows = tx.rows("doctor.lost_runs", now=now, lost_seconds=RUN_LOST_SECONDS)
    for row in rows:
        tx.run("run.end", run=row.id, outcome="lost", now=now)
    return len(rows)


def _raise(tx: Transaction) -> list[str]:
    too_low = [row for row in tx.rows("doctor.sequences") if row.last < row.stored]
    for row in too_low:
        tx.run("repair.sequence", name=row.name, value=row.stored)
    return [row.name for row in too_low]


def _end_leases(tx: Transaction, stream: str, group_name: str, by: str) -> int:
    group = groups.locked(tx, stream, group_name)
    now = tx.now()
    leases: list[LeaseRecord] = tx.rows("rewind.open", group_id=group.group_id)
    for lease in leases:
        give_back(tx, lease, group, now, Reason.RELEASED)
        give_back_all(tx, lease, LeaseOutcome.RELEASED, now)
    if leases:
        audit.record_for(tx, by, "repair", group, len(leases), {"leases": [lease.id for lease in leases]})
    return len(leases)

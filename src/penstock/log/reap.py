"""Reap: take back expired leases. A range comes back in pieces, a list in parts, a single event as a failure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial

from penstock.core import fingerprint
from penstock.core.delivery import Reason, State
from penstock.core.group import Group
from penstock.core.lease import Failure, LeaseOutcome, Settled, cut
from penstock.core.observe import LeasesExpired
from penstock.errors import UnknownGroup
from penstock.log import cancel, crash_guard, groups
from penstock.log.lease_end import end_lease
from penstock.log.outcomes import add_returned, fail, members_of, remember_kinds, suspect, write_rows
from penstock.log.transact import look, transact
from penstock.stores.base import Store, Transaction
from penstock.stores.rows import GroupName, LeaseRecord, bounds


def reap(
    store: Store, stream: str | None = None, group: str | None = None, named: Sequence[tuple[str, str]] | None = None
) -> int:
    """Take back the expired leases of all groups, a stream's, one, or those `named`; returns how many ended.

    Groups without an expired lease are not locked.
    """
    if stream is not None or group is not None:
        known = groups.listed(store, stream)
        named = [(one.stream, one.group_name) for one in known if group in (None, one.group_name)]
    ended = 0
    expired, cancelled = look(store, lambda tx: (expired_groups(tx, named), cancel.requested_groups(tx, named)))
    for where, name in expired:
        with suppress(UnknownGroup):  # deleted in the meantime
            ended += transact(store, partial(reap_group, stream=where, group_name=name))
    for where, name in cancelled:
        with suppress(UnknownGroup):
            transact(store, partial(cancel.answer_group, stream=where, group_name=name))
    return ended


def expired_groups(tx: Transaction, named: Sequence[tuple[str, str]] | None) -> list[tuple[str, str]]:
    """Return stream and name of the groups (of these, or of all) that have an expired lease."""
    streams = None if named is None else [stream for stream, _ in named]
    names = None if named is None else [name for _, name in named]
    rows: list[GroupName] = tx.rows("reap.groups", streams=streams, names=names, now=tx.now())
    return [(row.stream, row.group_name) for row in rows]


def reap_group(tx: Transaction, stream: str, group_name: str) -> int:
    """End every expired lease of a group; returns how many ended."""
    group = groups.locked(tx, stream, group_name)
    now = tx.now()
    expired = [lease.id for lease in tx.rows("reap.expired", group_id=group.group_id, now=now)]
    return end_expired(tx, group, expired, now)


def end_expired(tx: Transaction, group: Group, ids: list[int], now: datetime) -> int:
    """End these leases, except those whose holder is settling right now; returns how many ended."""
    leases: list[LeaseRecord] = tx.rows("reap.lock", ids=sorted(ids), now=now)
    if leases:
        ended = [_reap(tx, group, lease, now) for lease in leases]
        sums = (sum(one.published for one in ended), sum(one.failed for one in ended))
        counts = Settled(*sums, sum(one.dead for one in ended), sum(one.released for one in ended))
        tx.observed.append(LeasesExpired(f"{group.stream}/{group.group_name}", len(leases), counts))
    return len(leases)


def _reap(tx: Transaction, group: Group, lease: LeaseRecord, now: datetime) -> Settled:
    message = f"lease_expired: {lease.claimed_by} since {lease.claimed_at.isoformat()}"
    failure = fingerprint.of_text("lease_expired", message)
    counts = Settled(0, 0, 0, lease.members)
    if lease.members == 1:
        counts = _blame(tx, group, lease, failure, now)
    elif lease.offsets is None:
        members = members_of(tx, group, lease)
        for low, high, count in cut([row.offset for row in members], *bounds(lease)):
            add_returned(tx, lease, low, high, count, now, Reason.SUSPECT, now, failure)
    else:
        write_rows(tx, lease, group, suspect(lease, dict.fromkeys(lease.offsets, failure), now), now)
    remember_kinds(tx, [failure], now)
    end_lease(tx, lease, LeaseOutcome.EXPIRED, counts, now, upto=lease.low, because=failure)
    return counts


def _blame(tx: Transaction, group: Group, lease: LeaseRecord, failure: Failure, now: datetime) -> Settled:
    """Count a failure of the only event in a lease whose process died."""
    (member,) = members_of(tx, group, lease)
    if group.of_jobs:
        failure = failure._replace(retry_after_seconds=0)  # a job whose worker is gone is due at once
    given = fail(group, member, failure, now, random.random)
    write_rows(tx, lease, group, [given], now)
    crash_guard.watch(tx, group, [failure.code], lease.claimed_by)
    return Settled(0, 0, 1, 0) if given.fate.state is State.DEAD else Settled(0, 1, 0, 0)

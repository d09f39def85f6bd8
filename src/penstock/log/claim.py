"""Claim: one short transaction under the group's lock that creates one lease."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from penstock.core import limits
from penstock.core.columns import RowColumns
from penstock.core.group import Group
from penstock.core.lease import Idle, LeaseId, LeaseRow, Passed, Token
from penstock.log import checks, circuit, groups, reap
from penstock.log import limits as limits_of
from penstock.log.bookkeeping import Bookkeeping
from penstock.log.claim_lane import TOKEN_BITS, LaneClaim
from penstock.log.transact import repeat, transact
from penstock.stores.base import Store, Transaction
from penstock.stores.rows import LaneRow, NextDueRow

_LEASE_COLUMNS = 10  # of `claim.first`, before those of the event


class Claims:
    """Claims for the groups of one log; remembers which groups can use the one-statement claim."""

    def __init__(self, store: Store, bookkeeping: Bookkeeping) -> None:
        self._store = store
        self._bookkeeping = bookkeeping
        self._simple: set[tuple[str, str]] = set()  # groups whose last claim found only a plain range

    def claim(
        self,
        stream: str,
        group: str,
        limit: Any,
        most: int,
        claimed_by: str,
        lease_seconds: float | None,
        run: int | None,
    ) -> LeaseRow | Idle:
        """Claim at most `limit` events (and at most `most`); `Idle`, which says when to try again, if none is due."""
        wanted = min(checks.count(limit, "limit"), most)
        checks.required_key(claimed_by, "claimed_by")
        if lease_seconds is not None:
            checks.seconds(lease_seconds, "lease_seconds", limits.LEASE_SECONDS_MOST)
        if wanted == 0:
            return Idle(None)
        quick = self._at_once(stream, group, wanted, claimed_by, lease_seconds, run)
        if quick is not None:
            return quick
        while True:
            found = transact(
                self._store,
                lambda tx: claim_in(
                    tx, stream, group, wanted, claimed_by, lease_seconds, run=run, read=self._store.lease_query
                ),
            )
            if isinstance(found, LeaseRow):
                if found.simple and self._store.claims_at_once:
                    self._simple.add((stream, group))
                return found
            if isinstance(found, Idle):
                self._bookkeeping.idle(found)
                return found
            assert isinstance(found, Passed)

    def _at_once(
        self, stream: str, group: str, most: int, claimed_by: str, lease_seconds: float | None, run: int | None
    ) -> LeaseRow | None:
        """Claim in one statement, for small leases of groups whose last claim was a plain range."""
        if most > limits.READ_WITH_CLAIM or (stream, group) not in self._simple:
            return None
        found = repeat(lambda: claim_at_once(self._store, stream, group, most, claimed_by, lease_seconds, run))
        if found is None:
            self._simple.discard((stream, group))
        return found if isinstance(found, LeaseRow) else None


def claim_in(
    tx: Transaction,
    stream: str,
    group_name: str,
    limit: int,
    claimed_by: str,
    lease_seconds: float | None = None,
    *,
    upto: int | None = None,
    run: int | None = None,
    read: Callable[[LeaseRow], tuple[str, Mapping[str, object]]] | None = None,
) -> LeaseRow | Idle | Passed:
    """Claim in the caller's transaction: a lease, `Idle`, or `Passed` if the range held no matching event.

    With `upto` no new range goes beyond that offset; returned events are claimed wherever they are. `read` names the
    block that reads a lease; give it only if the transaction does nothing but this claim: the last statement then
    commits, and a small lease includes its events.
    """
    group, lanes = look_around(tx, stream, group_name)
    expired = [lease for lane in lanes for lease in lane.expired_ids]
    if expired:
        reap.end_expired(tx, group, expired, lanes[0].looked_at)
        group, lanes = look_around(tx, stream, group_name)  # the crash-loop guard may have paused it
    alone = read is not None and not expired
    if group.paused:
        return _idle(tx, Idle(None, paused=True), alone=alone)
    now = lanes[0].looked_at
    if group.circuit is not None:
        again = group.circuit.wait_until(now)
        if again is not None:
            wait, end, why = (again - now).total_seconds(), lanes[0].last, group.circuit.last_error
            idle = Idle(again, horizon=end, end=end, seconds=wait, unavailable=why or "unavailable")
            return _idle(tx, idle, alone=alone)
        limit, read = 1, None  # another statement follows: the lease is recorded as the probe
    allowed = limits_of.allowance(tx, group, lanes, now) if group.limited else None
    if allowed is not None:
        if allowed.count < 1:
            wait = max(0.0, (allowed.again - now).total_seconds())
            return Idle(allowed.again, horizon=lanes[0].last, end=lanes[0].last, seconds=wait)
        limit, read = min(limit, allowed.count), None  # another statement follows
    attempt = LaneClaim(tx, group, now, limit, claimed_by, lease_seconds or group.lease_seconds, upto, run, read)
    for lane in sorted(lanes, key=lambda one: (one.last_lease or 0, one.lane)):
        if group.exclusive and lane.open_ids:
            continue
        found = attempt.take(lane)
        if found is not None:
            if group.circuit is not None and isinstance(found, LeaseRow):
                circuit.probes(tx, group, found.id)
            if allowed is not None and isinstance(found, LeaseRow):
                allowed.spend(tx, found.members, now)
            return found
    until = _come_back(tx, group, now, lanes)
    seconds = None if until is None else max(0.0, (until - now).total_seconds())
    idle = Idle(until, horizon=attempt.horizon or 0, end=lanes[0].last, seconds=seconds)
    return _idle(tx, idle, alone=alone)


def claim_at_once(
    store: Store,
    stream: str,
    group_name: str,
    limit: int,
    claimed_by: str,
    lease_seconds: float | None,
    run: int | None,
) -> LeaseRow | Idle | None:
    """Claim a plain range in one statement; `Idle` if nothing is due, None if this needs the full claim."""
    rows = store.only(
        "claim.first",
        stream=stream,
        group_name=group_name,
        now=store.told_now,
        claimed_by=claimed_by,
        seconds=lease_seconds,
        most=limit,
        secret=secrets.randbits(TOKEN_BITS),
        run=run,
    )
    if not rows:
        return None
    if rows[0][1] is None:
        return Idle(None)
    return lease_at_once(rows, stream, group_name, limit, claimed_by)


def lease_at_once(rows: Sequence[Sequence[Any]], stream: str, group_name: str, limit: int, claimed_by: str) -> LeaseRow:
    """Return the lease, with its events, of a claim in one statement."""
    wanted, lease_id, token, group_id, binding, low, horizon, claimed_at, expires_at, last = rows[0][:_LEASE_COLUMNS]
    high = rows[-1][_LEASE_COLUMNS] if len(rows) == limit else horizon
    return LeaseRow(
        LeaseId(lease_id),
        Token(token),
        stream,
        group_name,
        group_id,
        lane=0,
        lanes=1,
        binding=binding,
        low=low,
        high=high,
        holes=[],
        offsets=None,
        members=len(rows),
        attempts=1,
        replay=0,
        claimed_by=claimed_by,
        claimed_at=claimed_at,
        expires_at=expires_at,
        whole=True,
        simple=True,
        left=last - high,
        events=RowColumns([row[_LEASE_COLUMNS:] for row in rows]),
        wanted=wanted,
    )


def _idle(tx: Transaction, idle: Idle, *, alone: bool) -> Idle:
    """Return `idle`. If the transaction wrote nothing, skip the commit, which would wait for the disk."""
    if alone:
        tx.forget()
    return idle


def look_around(tx: Transaction, stream: str, group_name: str) -> tuple[Group, list[LaneRow]]:
    """Lock the group for claiming; return it with the current state of every lane.

    The newest lease of a lane names those that were open before it, so that finding open leases never visits ended
    ones, however many there are and however old a snapshot some transaction holds.
    """
    lanes: list[LaneRow] = tx.look("claim.look", stream=stream, group_name=group_name)
    if not lanes:
        raise groups.unknown(stream, group_name)
    return groups.of(lanes[0]), lanes


def _come_back(tx: Transaction, group: Group, now: datetime, lanes: list[LaneRow]) -> datetime | None:
    """Return when something becomes claimable by the passing of time alone."""
    moments = [lane.expires_at for lane in lanes if lane.expires_at is not None]
    if not (lanes[0].has_rows or lanes[0].has_returned):
        return min(moments, default=None)
    due: NextDueRow | None = tx.one("claim.next_due", group_id=group.group_id, now=now)
    if due is not None:
        moments += [moment for moment in (due.row_at, due.returned_at) if moment is not None]
    return min(moments, default=None)

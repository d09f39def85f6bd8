"""Claims of streaming readers: a few leases under one number, claimed, settled and released together.

A reader is a streaming query. Its checkpoint refers to claims by number, so a number always means the same leases.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from penstock.core.delivery import Reason
from penstock.core.group import Group
from penstock.core.lease import Idle, LeaseId, LeaseOutcome, LeaseRow, Passed, Token
from penstock.core.limits import BATCH, LEASE_SECONDS_MOST, READER_FIRST_SECONDS, READER_LEASES
from penstock.errors import ClaimLost, LeaseLost, NotInLease, OrderedGroup, UnknownReader
from penstock.log import claim, groups, pipelines, reader_outcomes, release, settle
from penstock.log.lease_end import give_back_all
from penstock.log.outcomes import count_wanted, give_back
from penstock.log.reader_outcomes import Said
from penstock.log.transact import look, transact
from penstock.stores.base import Store, Transaction
from penstock.stores.rows import HeldRow, LeaseRecord, UnsettledRow, bounds

CLAIMED_BY = "reader:"


class ReaderClaims:
    """The claims of one group's streaming readers."""

    def __init__(self, store: Store, stream: str, group: str, run: int | None = None) -> None:
        self._store = store
        self._stream = stream
        self._group = group
        self._run = run  # that its leases belong to

    def next(self, reader: str, *, after: int, limit: int, upto: int | None) -> int | Idle:
        """Return the number of the next claim, or `Idle`, which says when to try again.

        The first claim is held only for minutes until `hold` is called: a query that dies before it has written a
        checkpoint comes back under another name.
        """
        seconds = LEASE_SECONDS_MOST if after else READER_FIRST_SECONDS
        while True:
            found = transact(
                self._store,
                lambda tx: next_claim(
                    tx,
                    self._stream,
                    self._group,
                    reader,
                    after=after,
                    limit=limit,
                    lease_seconds=seconds,
                    upto=upto,
                    run=self._run,
                ),
            )
            if not isinstance(found, Passed):
                return found

    def settle_upto(self, reader: str, number: int) -> list[int]:
        """Settle every claim up to this one; returns the claims of which a lease was already lost."""
        return transact(self._store, lambda tx: settle_upto(tx, self._stream, self._group, reader, number))

    def hold(self, reader: str, number: int, *, skip_lost: bool = False) -> list[LeaseRow]:
        """Return the leases of a claim, held for days from now on."""
        return transact(self._store, lambda tx: hold(tx, reader, number, LEASE_SECONDS_MOST, skip_lost=skip_lost))

    def check_held(self, tokens: Mapping[int, int]) -> None:
        """Raise `ClaimLost` unless every lease is still the reader's."""
        look(self._store, lambda tx: check_held(tx, tokens))

    def fail(self, reader: str, number: int, errors: Mapping[int, object]) -> None:
        """Say which events of a claim failed, by offset; they are settled as such when the claim is settled."""
        said = reader_outcomes.said(errors)
        transact(self._store, lambda tx: fail(tx, [(reader, number)], said))

    def horizon(self) -> int:
        """Return where the log ends now, for a query that reads what is available and stops."""
        return look(self._store, lambda tx: tx.horizon())


# --- in the caller's transaction --------------------------------------------------------------------------------------


def next_claim(
    tx: Transaction,
    stream: str,
    group_name: str,
    reader: str,
    *,
    after: int,
    limit: int,
    lease_seconds: float,
    upto: int | None = None,
    run: int | None = None,
) -> int | Idle | Passed:
    """Return the number of the reader's next claim: an existing one above `after`, or a new one.

    This runs under the group's lock: asking again, after a crash or from a second process, finds the whole claim or
    nothing.
    """
    group = groups.locked(tx, stream, group_name)
    if group.ordered:
        raise OrderedGroup(
            f"The group {group_name!r} on {stream!r} is ordered by key; a streaming reader does not keep order."
        )
    known = _next_known(tx, group, reader, after)
    if known is not None:
        return known
    last = tx.one("reader.last", reader=reader)
    number = 1 + max(after, (last and last.claim) or 0)
    members = leases = 0
    found: LeaseRow | Idle | Passed = Passed()
    while members < limit and leases < READER_LEASES:
        most = min(limit - members, BATCH)
        found = claim.claim_in(tx, stream, group_name, most, f"{CLAIMED_BY}{reader}", lease_seconds, upto=upto, run=run)
        if not isinstance(found, LeaseRow):
            break
        tx.run("reader.record", reader=reader, claim=number, lease=found.id, group_id=group.group_id)
        members, leases = members + found.members, leases + 1
    if leases:
        return number
    assert not isinstance(found, LeaseRow)
    return found


def _next_known(tx: Transaction, group: Group, reader: str, after: int) -> int | None:
    """Return the lowest claim above a number of which no lease is lost.

    A claim with a lost lease was never written to the checkpoint; the rest of it is released.
    """
    while True:
        row = tx.one("reader.next", reader=reader, after=after)
        if row is None or row.claim is None:
            return None
        after = int(row.claim)
        now = tx.now()
        leases: list[LeaseRecord] = tx.rows("reader.leases", reader=reader, claim=after)
        if leases and not any(_lost(lease, now) for lease in leases):
            return after
        for lease in leases:
            give_back_lease(tx, group, lease.id)


def _lost(lease: HeldRow, now: datetime) -> bool:
    """Return whether a lease is no longer its reader's: neither open, nor settled by it."""
    if lease.outcome is None:
        return lease.expires_at <= now
    return lease.outcome != LeaseOutcome.SETTLED


def settle_upto(tx: Transaction, stream: str, group_name: str, reader: str, number: int) -> list[int]:
    """Settle every claim up to this one; returns the claims of which a lease was already lost."""
    if number == 0:
        return []
    row = tx.one("reader.group", reader=reader, claim=number)
    if row is None or row.group_id != groups.get(tx, stream, group_name).group_id:
        raise UnknownReader(f"In the group {group_name!r} on {stream!r} the reader {reader!r} has no claim {number}.")
    lost = []
    leases: list[UnsettledRow] = tx.rows("reader.unsettled", reader=reader, upto=number)
    for lease in leases:
        if lease.failures:  # rows are born only under a lease that the transaction itself, not a savepoint, has locked
            tx.one("lease.lock", id=lease.id)
        try:
            with tx.savepoint():
                settle.settle_in(tx, lease.id, lease.token, reader_outcomes.settlement(lease))
        except LeaseLost:
            lost.append(lease.claim)
    return lost


def fail(tx: Transaction, claims: Iterable[tuple[str, int]], said: Mapping[int, Said]) -> None:
    """Store which events of these claims failed, instead of what was stored before; `NotInLease` for any other event.

    The claims are those of one batch: with several sources a query has one of each.
    """
    left = dict(said)
    for reader, number in claims:
        leases: list[LeaseRecord] = tx.rows("reader.leases", reader=reader, claim=number)
        for lease in leases:
            mine = _members(tx, lease, left) if left else {}
            tx.run("reader.fail", reader=reader, claim=number, lease=lease.id, failures=reader_outcomes.encode(mine))
            left = {offset: one for offset, one in left.items() if offset not in mine}
    if left:
        raise NotInLease(f"The event with the offset {min(left)} is not in this batch.")


def _members(tx: Transaction, lease: LeaseRecord, said: Mapping[int, Said]) -> dict[int, Said]:
    row = lease_row(lease, groups.get(tx, lease.stream, lease.group_name))
    members = set(pipelines.offsets(tx, row))
    return {offset: one for offset, one in said.items() if offset in members}


def hold(tx: Transaction, reader: str, number: int, lease_seconds: float, *, skip_lost: bool) -> list[LeaseRow]:
    """Return the leases of a claim and extend them; raise `ClaimLost` if one is lost, unless `skip_lost`.

    A claim that this reader has settled keeps its contents as long as its events exist.
    """
    leases: list[LeaseRecord] = tx.rows("reader.leases", reader=reader, claim=number)
    if not leases:
        raise UnknownReader(f"The reader {reader!r} has no claim {number} in this log.")
    group = groups.get(tx, leases[0].stream, leases[0].group_name)
    held = []
    for lease in leases:
        try:
            _keep(tx, group, lease, number, lease_seconds)
        except ClaimLost:
            if not skip_lost:
                raise
        else:
            held.append(lease_row(lease, group))
    return held


def _keep(tx: Transaction, group: Group, lease: LeaseRecord, number: int, lease_seconds: float) -> None:
    if lease.outcome == LeaseOutcome.SETTLED:
        if _count(tx, group, lease) != lease.members:
            raise ClaimLost(f"Events of lease {lease.id} (claim {number} of {lease.claimed_by}) have been removed.")
        return
    if not _lost(lease, now := tx.now()) and lease.expires_at - now > timedelta(seconds=lease_seconds / 2):
        return  # it still has most of its time left
    try:
        release.extend_in(tx, lease.id, lease.token, lease_seconds)
    except LeaseLost as error:
        raise ClaimLost(f"Claim {number} of {lease.claimed_by}: {error.message}") from error


def _count(tx: Transaction, group: Group, lease: LeaseRecord) -> int:
    """Count the members that a settled lease still has: prune and rewind remove finished ones."""
    if lease.offsets is None:
        return count_wanted(tx, group, lease, *bounds(lease), holes=lease.holes)
    row = tx.one("reader.there", group_id=group.group_id, offsets=lease.offsets)
    return 0 if row is None else int(row.members)


def lease_row(lease: LeaseRecord, group: Group) -> LeaseRow:
    """Return a stored lease as a claim returns it."""
    whole = lease.offsets is None and not lease.holes and group.span(lease.binding).everything
    return LeaseRow(
        LeaseId(lease.id),
        Token(lease.token),
        lease.stream,
        lease.group_name,
        lease.group_id,
        lease.lane,
        lease.lanes,
        lease.binding,
        lease.low,
        lease.high,
        lease.holes,
        lease.offsets,
        lease.members,
        lease.attempts,
        lease.replay,
        lease.claimed_by,
        lease.claimed_at,
        lease.expires_at,
        whole=whole,
    )


def check_held(tx: Transaction, tokens: Mapping[int, int]) -> None:
    """Raise `ClaimLost` unless every lease is open, or settled, with its token."""
    now = tx.now()
    leases: list[HeldRow] = tx.rows("reader.held", ids=sorted(tokens))
    found = {lease.id: lease for lease in leases}
    for lease_id, token in tokens.items():
        lease = found.get(lease_id)
        if lease is None or lease.token != token or _lost(lease, now):
            how = "is gone" if lease is None else f"has ended: {lease.outcome or LeaseOutcome.EXPIRED}"
            raise ClaimLost(f"Lease {lease_id} {how}.")


def give_back_lease(tx: Transaction, group: Group, lease_id: int) -> int:
    """End an open lease, expired or not, and release its members; returns how many."""
    lease: LeaseRecord | None = tx.one("lease.lock", id=lease_id)
    if lease is None or lease.outcome is not None:
        return 0
    now = tx.now()
    give_back(tx, lease, group, now, Reason.RELEASED)
    give_back_all(tx, lease, LeaseOutcome.RELEASED, now)
    return lease.members

"""The outcomes of a lease's members in a settle."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from penstock.core import fingerprint
from penstock.core.delivery import Reason, State
from penstock.core.group import Group
from penstock.core.lease import Failure, Settled, Settlement
from penstock.core.ordering import held_back
from penstock.errors import LeaseLost, NotInLease
from penstock.log.outcomes import (
    Given,
    Jitter,
    Member,
    add_returned,
    all_alike,
    bury,
    count_wanted,
    fail,
    members_of,
    skip,
    suspect,
    too_old,
    unblamed,
    write_rows,
)
from penstock.stores.base import Transaction
from penstock.stores.rows import LeaseRecord, MemberRow, bounds


@dataclass(slots=True)
class MemberOutcomes:
    """The outcomes of one lease's members."""

    tx: Transaction
    lease: LeaseRecord
    group: Group
    now: datetime
    jitter: Jitter
    said: Settlement
    failed: dict[int, Failure] = field(default_factory=dict)
    dead: dict[int, Failure] = field(default_factory=dict)
    released: set[int] = field(default_factory=set)
    known: dict[int, MemberRow] = field(default_factory=dict)
    _listed: Set[int] = field(init=False)
    _buried_upto: int = 0  # the released end of a range begins after the members that are too old

    def __post_init__(self) -> None:
        self._listed = frozenset(self.lease.offsets or ())

    @property
    def upto(self) -> int | None:
        """Where the finished part of a range ends."""
        if self.lease.offsets is not None:
            return None
        _, high = bounds(self.lease)
        return high if self.said.upto is None else max(self.said.upto, self._buried_upto)

    @property
    def has_tail(self) -> bool:
        """Whether the end of a range comes back."""
        return self.upto is not None and self.upto < bounds(self.lease)[1]

    def check_members(self, careful: bool) -> None:
        """Raise `NotInLease` unless every named event is in the lease and named once.

        Events with effects are looked up only if their keys matter: there may be very many.
        """
        self.failed = {offset: fingerprint.complete(why) for offset, why in self.said.failed.items()}
        self.dead = {offset: fingerprint.complete(why) for offset, why in self.said.dead.items()}
        self.released = set(self.said.released)
        named = [*self.failed, *self.dead, *self.released, *self.said.suspects, *self.said.keep, *self.said.skipped]
        wanted = {*named, *(self.said.event_effects if careful else ())}
        if len(named) != len({*named}):
            raise NotInLease("An event is named with two outcomes.")
        if self.upto is not None:
            low, high = bounds(self.lease)
            if not low <= self.upto <= high:
                raise NotInLease("`upto` lies outside the lease.")
        strangers = {o for o in (*self.said.event_effects, *self.said.results) if not self._may_hold(o)}
        if not wanted and not strangers:
            return
        self.known = self._known(wanted, careful)
        strangers |= wanted - self.known.keys()
        if self.upto is not None:
            finished = self.released | self.said.keep | self.said.skipped.keys()
            strangers |= {offset for offset in finished if offset > self.upto}
        if strangers:
            raise NotInLease(f"Not in the lease, or beyond its finished part: {sorted(strangers)[:10]}.")

    def _may_hold(self, offset: int) -> bool:
        if self.lease.offsets is not None:
            return offset in self._listed
        low, high = bounds(self.lease)
        return low < offset <= high

    def _known(self, wanted: set[int], careful: bool) -> dict[int, MemberRow]:
        """Return those of the events that are members.

        If only their offsets matter, they are not looked up: one of another stream is found when its row is written.
        """
        lease = self.lease
        if all_alike(self.group, lease) and not careful:
            low, high = bounds(lease)
            return {offset: Member(offset) for offset in wanted if low < offset <= high}
        at_hand = self.said.keys
        if at_hand is not None and wanted <= at_hand.keys() and self.group.retry.max_age_seconds is None:
            return {offset: Member(offset, at_hand[offset]) for offset in wanted}
        return {row.offset: row for row in members_of(self.tx, self.group, lease, offsets=sorted(wanted))}

    def bury_the_old(self) -> None:
        """Make DEAD what has become too old while its target was unavailable."""
        why = self.said.unavailable
        if why is None or self.group.retry.max_age_seconds is None:
            return
        back = [self.known[offset] for offset in sorted(self.released)]
        end: list[MemberRow] = []
        if self.upto is not None and self.has_tail:
            end = [row for row in members_of(self.tx, self.group, self.lease) if row.offset > self.upto]
        taken = self.failed.keys() | self.dead.keys() | self.said.suspects.keys()
        young = False
        for row in [*back, *end]:
            assert row.created_at is not None, "a group with `max_age_seconds` asks for it"
            old = row.offset not in taken and self.group.retry.too_old((self.now - row.created_at).total_seconds())
            if old:
                self.known[row.offset] = row
                self.dead[row.offset] = too_old(self.group, row.created_at, self.now, why)
                self.released.discard(row.offset)
            if row.offset not in self.said.released:
                young = young or not (old or row.offset in taken)
                if not young:
                    self._buried_upto = row.offset if row is not end[-1] else bounds(self.lease)[1]

    def failures(self) -> list[Failure]:
        """Return all failures."""
        because = [] if self.said.unavailable is None else [self.said.unavailable]
        return [*self.failed.values(), *self.dead.values(), *self.said.suspects.values(), *because]

    def results(self) -> list[dict[str, Any]]:
        """Return what the jobs that succeeded have returned."""
        without = self.unsuccessful()
        return [{"offset": o, "result": text} for o, text in self.said.results.items() if o not in without]

    def unsuccessful(self) -> set[int]:
        """Return every member that is not published, before effects are applied."""
        given = {one.offset for one in self._outcomes() if one.fate.state is not State.PUBLISHED}
        return given | self.said.keep

    def write(self) -> Settled:
        """Write rows for failed and released members, and the unfinished end as one returned range."""
        given = self._outcomes()
        tail = 0
        upto = self.upto
        if upto is not None and self.has_tail:
            _, high = bounds(self.lease)
            # The range that comes back steps over what has a row of its own.
            tail = count_wanted(self.tx, self.group, self.lease, upto, high, holes=self.lease.holes)
            tail -= sum(one.offset > upto for one in given)
        if self.lease.offsets is not None:
            named = {one.offset for one in given} | self.said.keep
            done = [offset for offset in self.lease.offsets if offset not in named]
            self._publish(done)
        write_rows(self.tx, self.lease, self.group, given, self.now)
        if tail:
            assert upto is not None
            _, high = bounds(self.lease)
            due = self.now + timedelta(seconds=self.said.due_after_seconds)
            because = self.said.unavailable
            add_returned(self.tx, self.lease, upto, high, tail, due, Reason.RELEASED, self.now, because)
        failed = sum(one.fate.failures and one.fate.state is State.PENDING for one in given)
        dead = sum(one.fate.state is State.DEAD for one in given)
        skipped = sum(one.fate.state is State.PUBLISHED for one in given)
        released = len(given) - failed - dead - skipped + tail
        published = self.lease.members - failed - dead - released - len(self.said.keep)
        return Settled(published, failed, dead, released)

    def _publish(self, rows: list[int]) -> None:
        if not rows:
            return
        published = self.tx.run(
            "settle.publish_rows",
            group_id=self.group.group_id,
            lease=self.lease.id,
            claimed_by=self.lease.claimed_by,
            claimed_at=self.lease.claimed_at,
            offsets=rows,
            now=self.now,
        )
        if published != len(rows):
            raise LeaseLost(f"Lease {self.lease.id} no longer holds all its rows.")

    def _outcomes(self) -> list[Given]:
        given = {offset: self._failure(offset, failure) for offset, failure in self.failed.items()}
        given |= {offset: bury(offset, failure, self.now) for offset, failure in self.dead.items()}
        back = unblamed(Reason.RELEASED, self.said.unavailable)
        given |= {offset: Given(offset, self.now, back) for offset in self.released}
        given |= {one.offset: one for one in suspect(self.lease, self.said.suspects, self.now)}
        given |= {offset: skip(offset, reason, self.now) for offset, reason in self.said.skipped.items()}
        if self.group.ordered and given:
            blocked = unblamed(Reason.BLOCKED)
            given |= {offset: Given(offset, self.now, blocked) for offset in self._blocked(given)}
        return [given[offset] for offset in sorted(given)]

    def _blocked(self, given: Mapping[int, Given]) -> list[int]:
        """Return members that an unresolved event of their key holds back, whatever the caller reports."""
        halts = self.group.halts
        states = {State.PENDING, State.DEAD} if halts else {State.PENDING}
        stopped = {offset for offset, one in given.items() if one.fate.state in states}
        keys = sorted({key for o in stopped if (key := self.known[o].ordering_key) is not None})
        if not keys:
            return []
        at_hand = self.said.keys
        upto = self.upto
        if at_hand is not None and stopped <= at_hand.keys():
            members = [(offset, key) for offset, key in at_hand.items() if upto is None or offset <= upto]
        else:
            found = members_of(self.tx, self.group, self.lease, upto=upto, keys=keys)
            members = [(row.offset, row.ordering_key) for row in found]
        return held_back(members, stopped, given.keys() - self.released - self.said.skipped.keys())

    def _failure(self, offset: int, failure: Failure) -> Given:
        return fail(self.group, self.known[offset], failure, self.now, self.jitter)

"""Settle: one transaction, once per lease, that believes only the holder of the token."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import orjson

from penstock.core import codec
from penstock.core.delivery import Reason, State
from penstock.core.event import NewEvent
from penstock.core.lanes import slice_of
from penstock.core.lease import Effects, Failure, Outcome, Settled, Settlement
from penstock.core.ordering import held_back
from penstock.errors import EffectFailed, LeaseLost, NotInLease, SettleMismatch
from penstock.stores import groups, keyed_state
from penstock.stores.base import Row, Transaction, UserSqlError
from penstock.stores.groups import Group

Jitter = Callable[[], float]


def holder(tx: Transaction, lease_id: int, token: int) -> tuple[Row, Group, datetime]:
    """The open lease, locked, with its group and the time; `LeaseLost` for anybody but its holder."""
    lease = _locked(tx, lease_id, token)
    now = _check_open(tx, lease)
    return lease, groups.get(tx, lease.stream, lease.group_name), now


def _check_open(tx: Transaction, lease: Row) -> datetime:
    now = tx.now()
    if lease.outcome is not None:
        raise LeaseLost(f"Lease {lease.id} has ended: {lease.outcome}.")
    if lease.expires_at <= now:
        raise LeaseLost(f"Lease {lease.id} expired at {lease.expires_at.isoformat()}.")
    return now


def _locked(tx: Transaction, lease_id: int, token: int) -> Row:
    lease = tx.one("lease.lock", id=lease_id)
    if lease is None or lease.token != token:
        raise LeaseLost(f"Lease {lease_id} is not held with this token.")
    return lease


def extend(tx: Transaction, lease_id: int, token: int, seconds: float | None) -> datetime:
    """Keep the lease for longer, from now on; returns the new end."""
    _, group, now = holder(tx, lease_id, token)
    expires_at = now + timedelta(seconds=seconds or group.lease_seconds)
    tx.run("lease.extend", id=lease_id, expires_at=expires_at)
    return expires_at


def release(tx: Transaction, lease_id: int, token: int) -> Settled:
    """Give everything back, unblamed and due at once; a range comes back as a range."""
    lease, group, now = holder(tx, lease_id, token)
    give_back(tx, lease, group, now, Reason.RELEASED)
    tx.run("lease.end", id=lease_id, outcome=Outcome.RELEASED, upto=lease.low, digest=None, answer=None, now=now)
    return Settled(0, 0, 0, lease.members)


def give_back(tx: Transaction, lease: Row, group: Group, now: datetime, reason: Reason) -> None:
    """Put what an ended lease holds back: the range as one returned range, rows as PENDING."""
    if lease.offsets is None:
        add_returned(tx, lease, lease.low, lease.high, lease.members, now, reason)
    else:
        rows = [Given(offset, State.PENDING, now, reason=reason, outcome="released") for offset in lease.offsets]
        write_rows(tx, lease, group, rows, now)


def add_returned(
    tx: Transaction,
    lease: Row,
    low: int,
    high: int,
    members: int,
    due: datetime,
    reason: str,
    last_error: str | None = None,
) -> None:
    """A range of a lease waits to be claimed again."""
    tx.run(
        "returned.add",
        group_id=lease.group_id,
        lane=lease.lane,
        lanes=lease.lanes,
        binding=lease.binding,
        low=low,
        high=high,
        members=members,
        attempts=lease.attempts,
        replay=lease.replay,
        available_at=due,
        reason=reason,
        last_error=last_error,
    )


@dataclass(frozen=True, slots=True)
class Given:
    """What becomes of one member that was not published."""

    offset: int
    state: State
    available_at: datetime
    reason: str | None = None
    failures: int = 0  # to add
    error: str | None = None
    code: str | None = None
    outcome: str = "failed"  # the word in the attempt log


def write_rows(tx: Transaction, lease: Row, group: Group, rows: list[Given], now: datetime) -> None:
    """Write exceptions: new rows out of a range, changed ones out of a list; each leaves a line in the attempt log."""
    if not rows:
        return
    packed = [
        {
            "offset": row.offset,
            "state": row.state,
            "available_at": row.available_at,
            "reason": row.reason,
            "failures": row.failures,
            "error": row.error,
            "code": row.code,
            "outcome": row.outcome,
            "dead_at": now if row.state is State.DEAD else None,
        }
        for row in rows
    ]
    common = {"group_id": group.group_id, "lease": lease.id, "now": now, "rows": packed}
    if lease.offsets is None:
        written = tx.run(
            "settle.insert_rows",
            stream=group.stream,
            group_name=group.group_name,
            attempts=lease.attempts,
            replays=lease.replay,
            **common,
        )
    else:
        written = tx.run("settle.update_rows", **common)
    if written != len(rows):
        raise NotInLease("An outcome names an event that is not in the lease.")
    tx.run("settle.log", claimed_by=lease.claimed_by, claimed_at=lease.claimed_at, **common)


def settle(
    tx: Transaction,
    lease_id: int,
    token: int,
    said: Settlement,
    *,
    emit: Callable[[Any], NewEvent],
    jitter: Jitter = random.random,
    careful: bool = False,
) -> Settled:
    """Apply everything a settlement says, or nothing of it.

    With `careful` every event's effects run in a savepoint of their own, so that only the culprit fails.
    """
    digest = codec.digest(_plain(said))
    if said.upto is not None and said == Settlement(upto=said.upto, versions=said.versions):
        whole = tx.one("settle.whole", id=lease_id, token=token, upto=said.upto, digest=digest, now=tx.now())
        if whole is not None:
            return Settled(whole.members, 0, 0, 0)
    lease = _locked(tx, lease_id, token)
    if lease.outcome == Outcome.SETTLED:
        if lease.digest != digest:
            raise SettleMismatch(f"Lease {lease_id} was settled with other outcomes.")
        return Settled(*lease.answer)
    now = _check_open(tx, lease)
    group = groups.get(tx, lease.stream, lease.group_name)
    work = _Settling(tx, lease, group, now, jitter, said)
    work.check_members()
    # Who is given back is settled first: an event that does not succeed leaves no effect, whatever it asked for.
    effects = _Applied(tx, group, now, emit, {offset: row.ordering_key for offset, row in work.known.items()})
    effects.apply(said, without=work.unsuccessful(), careful=careful)
    work.failed.update(effects.culprits)
    work.released.update(effects.dependents)
    answer = work.write()
    if effects.emitted:
        tx.append(effects.emitted, unique=False)
    _end(tx, lease, work.upto, digest, answer, now)
    return answer


def _end(tx: Transaction, lease: Row, upto: int | None, digest: bytes, answer: Settled, now: datetime) -> None:
    tx.run(
        "lease.end",
        id=lease.id,
        outcome=Outcome.SETTLED,
        upto=upto,
        digest=digest,
        answer=[answer.published, answer.failed, answer.dead, answer.released],
        now=now,
    )


def _plain(said: Settlement) -> dict[str, Any]:
    def effects(one: Effects) -> list[Any]:
        return [
            {key: dict(values) for key, values in one.state.items()},
            [dict(event) for event in one.emit],
            [[sql, list(params)] for sql, params in one.execute],
        ]

    def failures(some: Mapping[int, Failure]) -> dict[str, list[Any]]:
        return {str(o): [f.code, f.message, f.retry_after_seconds] for o, f in some.items()}

    return {
        "failed": failures(said.failed),
        "dead": failures(said.dead),
        "released": sorted(said.released),
        "upto": said.upto,
        "effects": effects(said.effects),
        "event_effects": {str(offset): effects(one) for offset, one in said.event_effects.items()},
    }


@dataclass(slots=True)
class _Applied:
    """The effects of a settlement as they are applied: state first, then the user's SQL, in offset order; events to
    emit are only collected, because they go last."""

    tx: Transaction
    group: Group
    now: datetime
    emit: Callable[[Any], NewEvent]
    keys: Mapping[int, str | None]
    emitted: list[NewEvent] = field(default_factory=list)
    culprits: dict[int, Failure] = field(default_factory=dict)
    dependents: set[int] = field(default_factory=set)

    def apply(self, said: Settlement, *, without: Set[int], careful: bool) -> None:
        """Everything at once, or, with `careful`, event by event so that only the culprit fails."""
        versions = dict(said.versions)
        self._one(said.effects, versions)
        events = [
            (offset, effects)
            for offset, effects in sorted(said.event_effects.items())
            if offset not in without and (said.upto is None or offset <= said.upto)
        ]
        if careful:
            self._one_by_one(events, versions)
        else:
            self._all(events, versions)

    def _all(self, events: Sequence[tuple[int, Effects]], versions: dict[tuple[str, str], int]) -> None:
        """The last value of a state wins; statements follow in offset order."""
        state: dict[str, dict[str, Any]] = {}
        for _, effects in events:
            for key, values in effects.state.items():
                state.setdefault(key, {}).update(values)
        if state:
            keyed_state.write(self.tx, self.group.group_id, state, versions, self.now)
        for _, effects in events:
            for sql, params in effects.execute:
                self.tx.user_sql(sql, params)
            self.emitted.extend(self.emit(event) for event in effects.emit)

    def _one_by_one(self, events: Sequence[tuple[int, Effects]], versions: dict[tuple[str, str], int]) -> None:
        """A savepoint each. What a key did behind its culprit may rest on it, and is given back."""
        closed: set[str] = set()
        for offset, effects in events:
            key = self.keys[offset]
            if key in closed:
                self.dependents.add(offset)
                continue
            kept, before = len(self.emitted), dict(versions)
            try:
                with self.tx.savepoint():
                    self._one(effects, versions)
            except UserSqlError as error:
                del self.emitted[kept:]
                versions.clear()
                versions.update(before)
                self.culprits[offset] = Failure("effect_failed", codec.error_text(error))
                if key is not None:
                    closed.add(key)

    def _one(self, effects: Effects, versions: dict[tuple[str, str], int]) -> None:
        if effects.state:
            versions.update(keyed_state.write(self.tx, self.group.group_id, effects.state, versions, self.now))
        for sql, params in effects.execute:
            self.tx.user_sql(sql, params)
        self.emitted.extend(self.emit(event) for event in effects.emit)


@dataclass(slots=True)
class _Settling:
    """What becomes of the members of one lease."""

    tx: Transaction
    lease: Row
    group: Group
    now: datetime
    jitter: Jitter
    said: Settlement
    failed: dict[int, Failure] = field(default_factory=dict)
    dead: dict[int, Failure] = field(default_factory=dict)
    released: set[int] = field(default_factory=set)
    known: dict[int, Row] = field(default_factory=dict)

    @property
    def upto(self) -> int | None:
        """Where the finished part of a range ends."""
        if self.lease.offsets is not None:
            return None
        return self.lease.high if self.said.upto is None else self.said.upto

    def check_members(self) -> None:
        """Every event that is named must be in the lease, and be named once."""
        self.failed, self.dead = dict(self.said.failed), dict(self.said.dead)
        self.released = set(self.said.released)
        named = [*self.failed, *self.dead, *self.released]
        wanted = {*named, *self.said.event_effects}
        if len(named) != len({*named}):
            raise NotInLease("An event is named with two outcomes.")
        if self.upto is not None and not self.lease.low <= self.upto <= self.lease.high:
            raise NotInLease("`upto` lies outside the lease.")
        if not wanted:
            return
        self.known = {row.offset: row for row in self._members(self.lease.high, offsets=sorted(wanted))}
        strangers = wanted - self.known.keys()
        if self.upto is not None:
            strangers |= {offset for offset in named if offset > self.upto}
        if strangers:
            raise NotInLease(f"Not in the lease, or beyond its finished part: {sorted(strangers)[:10]}.")

    def _members(
        self, high: int | None, *, offsets: list[int] | None = None, keys: list[str] | None = None
    ) -> list[Row]:
        """Members up to an offset, some by offset or all of some keys; with the failures each had before."""
        first, last = slice_of(self.lease.lane, self.lease.lanes)
        span = self.group.span(self.lease.binding) if self.lease.offsets is None else None
        return self.tx.rows(
            "settle.members",
            lease=self.lease.id,
            group_id=self.group.group_id,
            stream=self.group.stream,
            low=self.lease.low,
            high=high,
            listed=self.lease.offsets,
            holes=list(self.lease.holes),
            first_bucket=first,
            last_bucket=last,
            binding=self.lease.binding,
            type_regex=span.type_regex if span else None,
            headers=span.headers if span else None,
            offsets=offsets,
            keys=keys,
        )

    def unsuccessful(self) -> set[int]:
        """Every member that is not published, as far as the caller's words tell."""
        return {one.offset for one in self._outcomes()}

    def write(self) -> Settled:
        """Rows for failures and for what is given back, then the unfinished end as one range."""
        given = self._outcomes()
        tail = 0
        if self.upto is not None and self.upto < self.lease.high:
            row = self.tx.one("settle.count_tail", **self._tail())
            tail = 0 if row is None else row.members
        if self.lease.offsets is not None:
            named = {one.offset for one in given}
            done = [offset for offset in self.lease.offsets if offset not in named]
            if done:
                self.tx.run("settle.publish_rows", group_id=self.group.group_id, offsets=done, now=self.now)
        write_rows(self.tx, self.lease, self.group, given, self.now)
        if tail:
            assert self.upto is not None
            due = self.now + timedelta(seconds=self.said.due_after_seconds)
            add_returned(self.tx, self.lease, self.upto, self.lease.high, tail, due, Reason.RELEASED)
        failed = sum(one.failures and one.state is State.PENDING for one in given)
        dead = sum(one.state is State.DEAD for one in given)
        released = len(given) - failed - dead + tail
        return Settled(self.lease.members - failed - dead - released, failed, dead, released)

    def _tail(self) -> dict[str, Any]:
        first, last = slice_of(self.lease.lane, self.lease.lanes)
        span = self.group.span(self.lease.binding)
        return {
            "stream": self.group.stream,
            "low": self.upto,
            "high": self.lease.high,
            "without_rows_of": None,
            "holes": list(self.lease.holes),
            "first_bucket": first,
            "last_bucket": last,
            "binding": self.lease.binding,
            "type_regex": span.type_regex,
            "headers": span.headers,
        }

    def _outcomes(self) -> list[Given]:
        given = {offset: self._failure(offset, failure) for offset, failure in self.failed.items()}
        given |= {offset: self._burial(offset, failure) for offset, failure in self.dead.items()}
        given |= {
            offset: Given(offset, State.PENDING, self.now, reason=Reason.RELEASED, outcome="released")
            for offset in self.released
        }
        if self.group.ordered and given:
            for offset in self._blocked(given):
                given[offset] = Given(offset, State.PENDING, self.now, reason=Reason.BLOCKED, outcome="released")
        return [given[offset] for offset in sorted(given)]

    def _blocked(self, given: Mapping[int, Given]) -> list[int]:
        """An ordered key does not go on behind an event that is not resolved, whatever the caller says."""
        halts = self.group.on_dead == "halt"
        stopped = {offset for offset, one in given.items() if one.state is State.PENDING or halts}
        keys = sorted({key for o in stopped if (key := self.known[o].ordering_key) is not None})
        if not keys:
            return []
        members = [(row.offset, row.ordering_key) for row in self._members(self.upto, keys=keys)]
        return held_back(members, stopped)

    def _failure(self, offset: int, failure: Failure) -> Given:
        before = self.known[offset]
        return fail(self.group, before.failures, before.created_at, offset, failure, self.now, self.jitter)

    def _burial(self, offset: int, failure: Failure) -> Given:
        return bury(offset, failure, self.now)


def bury(offset: int, failure: Failure, now: datetime) -> Given:
    """A failure that ends it."""
    return Given(offset, State.DEAD, now, failures=1, error=failure.message, code=failure.code, outcome="dead")


def fail(
    group: Group,
    failures: int,
    created_at: datetime,
    offset: int,
    failure: Failure,
    now: datetime,
    jitter: Jitter,
) -> Given:
    """A failed attempt: PENDING after the stored backoff, or DEAD when the budget or the age is used up."""
    if group.retry.exhausted(failures + 1, age_seconds=(now - created_at).total_seconds()):
        return bury(offset, failure, now)
    delay = failure.retry_after_seconds
    if delay is None:
        delay = group.retry.delay_seconds(failures + 1, u=jitter())
    return Given(
        offset,
        State.PENDING,
        now + timedelta(seconds=delay),
        reason=Reason.RETRY,
        failures=1,
        error=failure.message,
        code=failure.code,
    )


def effect_error(error: UserSqlError) -> EffectFailed:
    """What the caller of a settle hears about a statement that belongs to no single event."""
    return EffectFailed(f"A statement of the settle failed: {error}")


def dump(value: Any) -> str:
    """JSON text with times in ISO form."""
    return orjson.dumps(value).decode()

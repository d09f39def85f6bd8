"""The log: everything an application calls, in the order of an event's life."""

from __future__ import annotations

import getpass
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from penstock.core import limits
from penstock.core.delivery import State
from penstock.core.event import (
    Appended,
    AppendedMany,
    EventColumns,
    NewEvent,
    check_key,
    check_name,
    check_time,
    parse_event_id,
)
from penstock.core.events import Event, Events
from penstock.core.lanes import check_lanes
from penstock.core.lease import Idle, LeaseRow, Passed, Settled, Settlement
from penstock.core.retry import Retry
from penstock.core.routing import check_patterns
from penstock.errors import CommitUnknown, FilterNeeded, InvalidInput, StoreBusy, UnknownEvent
from penstock.log import appending, outbox
from penstock.log.ids import EventIds
from penstock.log.lease import Lease
from penstock.stores import (
    claim,
    drain,
    effects,
    groups,
    inspect,
    keyed_state,
    operate,
    reap,
    rewind,
    settle,
    stats,
    tally,
)
from penstock.stores.base import Conflict, Store, Transaction, UserSqlError
from penstock.stores.groups import Group
from penstock.stores.inspect import DeliveryRecord
from penstock.stores.operate import Filter
from penstock.stores.stats import Stats

T = TypeVar("T")
_IDLE_BLOCKS = 5
Position = str | int | datetime


@dataclass(frozen=True, slots=True)
class Moved:
    """How many deliveries an operator's action moved (or, on a dry run, would move)."""

    count: int
    dry_run: bool = False


class Log:
    """A durable event log in one database, made by `penstock.open(url)`. Thread-safe; open it once per process."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._counted = 0  # how far the tally is known to reach

    # --- opening and closing -------------------------------------------------------------------------------------

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give every connection back."""
        self.store.close()

    def _run(self, work: Callable[[Transaction], T], *, write: bool = True) -> T:
        """One transaction, run again where the database asks for it."""
        for last in (*[False] * (limits.SETTLE_RETRIES - 1), True):
            try:
                with self.store.transaction(write=write) as tx:
                    return work(tx)
            except Conflict as error:
                if last:
                    raise StoreBusy(f"The database kept asking to try again: {error}.") from error
        raise AssertionError("unreachable")

    # --- append and read -----------------------------------------------------------------------------------------

    def append(
        self,
        stream: str,
        payload: Any,
        *,
        type: str | None = None,
        ordering_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        event_id: Any = None,
        available_at: datetime | None = None,
        partition_key: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        content_type: str | None = None,
        connection: Any = None,
    ) -> Appended:
        """Store one event. With `connection` it becomes part of the caller's transaction, and of nothing else.

        The same `event_id` again is stored once and answered with `duplicate=True`.
        """
        event, chosen = appending.one(
            stream,
            {
                "payload": payload,
                "type": type,
                "ordering_key": ordering_key,
                "headers": headers,
                "event_id": event_id,
                "available_at": available_at,
                "partition_key": partition_key,
                "metadata": metadata,
                "content_type": content_type,
            },
        )
        if connection is not None:
            return outbox.append(self.store, connection, event, chosen)
        try:
            return self._run(lambda tx: outbox.run(self.store, tx, event, chosen))
        except CommitUnknown as error:
            raise CommitUnknown(event_id=event.event_id) from error

    async def append_async(
        self,
        stream: str,
        payload: Any,
        *,
        connection: Any,
        type: str | None = None,
        ordering_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        event_id: Any = None,
        available_at: datetime | None = None,
        partition_key: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        content_type: str | None = None,
    ) -> Appended:
        """`append` on an async connection of the caller's."""
        event, chosen = appending.one(
            stream,
            {
                "payload": payload,
                "type": type,
                "ordering_key": ordering_key,
                "headers": headers,
                "event_id": event_id,
                "available_at": available_at,
                "partition_key": partition_key,
                "metadata": metadata,
                "content_type": content_type,
            },
        )
        return await outbox.append_async(self.store, connection, event, chosen)

    def append_many(self, stream: str, events: Iterable[Mapping[str, Any]]) -> AppendedMany:
        """Store many events in one transaction, at bulk speed: all of them or none."""
        listed = events if isinstance(events, list) else list(events)
        ready, ours = appending.many(stream, listed)
        try:
            return self._append(ready, ours)
        except (
            InvalidInput
        ):  # a payload that is not JSON: nothing was stored; the long way knows bytes, and better words
            return self._append(*appending.one_by_one(stream, listed))

    def _append(self, ready: Sequence[NewEvent] | EventColumns, ours: bool) -> AppendedMany:
        if not len(ready):
            return AppendedMany((), 0)
        ids = EventIds(ready.event_ids if isinstance(ready, EventColumns) else [one.event_id for one in ready])
        try:
            duplicates = self._run(lambda tx: tx.append(ready, unique=ours))
        except CommitUnknown as error:
            raise CommitUnknown(event_id=ids[0]) from error
        return AppendedMany(ids, duplicates)

    def read(self, stream: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        """Events in offset order, up to the horizon: nothing can still appear between what is returned."""
        check_name(stream, "stream")
        horizon = self._run(lambda tx: tx.horizon(), write=False)
        found = self.store.read_events(stream, _count(after, "after"), horizon, _count(limit, "limit"))
        return list(Events(found, stream, None))

    # --- groups --------------------------------------------------------------------------------------------------

    def create_group(
        self,
        stream: str,
        group: str,
        *,
        start: Position = "beginning",
        retry: Retry | None = None,
        lease_seconds: float = limits.LEASE_SECONDS,
        ordering: str | None = None,
        keyed: bool = False,
        on_dead: str = "continue",
        types: Sequence[str] | None = None,
        headers: Mapping[str, str] | None = None,
        lanes: int | None = None,
    ) -> Group:
        """Create a group; the same call again returns it, other settings raise `GroupExists`.

        A group with `ordering="key"`, or `keyed` (state without order), is worked on by lanes.
        """
        begin, settings = _settings(
            stream, group, start, retry, lease_seconds, ordering, keyed, on_dead, types, headers, lanes
        )
        return self._run(lambda tx: groups.create(tx, stream, group, begin, settings))

    def declare_group(
        self,
        stream: str,
        group: str,
        *,
        start: Position = "beginning",
        retry: Retry | None = None,
        lease_seconds: float = limits.LEASE_SECONDS,
        ordering: str | None = None,
        keyed: bool = False,
        on_dead: str = "continue",
        types: Sequence[str] | None = None,
        headers: Mapping[str, str] | None = None,
        lanes: int | None = None,
        by: str | None = None,
    ) -> Group:
        """What an app does with its groups: create one that is missing, bring retry and lease settings up to date.

        Another binding or order than the stored one raises `BindingChanged`.
        """
        begin, settings = _settings(
            stream, group, start, retry, lease_seconds, ordering, keyed, on_dead, types, headers, lanes
        )
        return self._run(lambda tx: groups.declare(tx, stream, group, begin, settings, by or _whoami()))

    def groups(self, stream: str | None = None) -> list[Group]:
        """All groups, of one stream or of the log."""
        return self._run(lambda tx: groups.every(tx, stream), write=False)

    def streams(self) -> list[str]:
        """The names of all streams; a stream exists by being appended to."""
        return [name for name, _ in self._run(inspect.streams, write=False)]

    def pause(self, stream: str, group: str, *, reason: str | None = None, by: str | None = None) -> None:
        """Hand out nothing new; open leases go on."""
        self._run(lambda tx: groups.set_paused(tx, stream, group, True, reason, by or _whoami()))

    def resume(self, stream: str, group: str, *, by: str | None = None) -> None:
        """Go on after a pause."""
        self._run(lambda tx: groups.set_paused(tx, stream, group, False, None, by or _whoami()))

    def bind(
        self,
        stream: str,
        group: str,
        *,
        types: Sequence[str] | None = None,
        headers: Mapping[str, str] | None = None,
        by: str | None = None,
    ) -> int:
        """Change what the group wants, forward only; returns the offset behind which the new binding holds."""
        known = check_patterns(types)
        return self._run(lambda tx: groups.bind(tx, stream, group, known, headers or None, by or _whoami()))

    def double_lanes(self, stream: str, group: str, *, by: str | None = None) -> int:
        """Cut every lane of an ordered or keyed group in half; returns the new number of lanes."""
        return self._run(lambda tx: groups.double_lanes(tx, stream, group, by or _whoami()))

    def delete_group(self, stream: str, group: str, *, by: str | None = None) -> None:
        """Forget a group and its deliveries; the events stay."""
        self._run(lambda tx: groups.delete(tx, stream, group, by or _whoami()))

    def rewind(
        self,
        stream: str,
        group: str,
        *,
        to: Position,
        state: str = "keep",
        dry_run: bool = False,
        by: str | None = None,
    ) -> Moved:
        """Deliver everything above a position again; open leases end, other groups do not move."""
        if state not in ("keep", "reset"):
            raise InvalidInput(f'state is "keep" or "reset", not {state!r}.')
        target = check_time(to, "to") if isinstance(to, datetime) else to
        assert target is not None
        count = self._run(
            lambda tx: rewind.rewind(
                tx, stream, group, target, reset_state=state == "reset", dry_run=dry_run, by=by or _whoami()
            )
        )
        return Moved(count, dry_run)

    # --- inspection ----------------------------------------------------------------------------------------------

    def event(self, stream: str, event_id: Any) -> Event:
        """One event, by its id or its offset."""
        offset = event_id if isinstance(event_id, int) else None
        known = None if offset is not None else parse_event_id(event_id)
        row = self._run(lambda tx: tx.one("inspect.event", stream=stream, event_id=known, offset=offset), write=False)
        if row is None:
            raise UnknownEvent(f"There is no event {event_id} on {stream!r}.")
        return Events(self.store.read_events(stream, row.offset - 1, row.offset, 1), stream, None)[0]

    def deliveries(
        self,
        stream: str,
        group: str,
        *,
        state: str | None = None,
        type: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        error: str | None = None,
        event_ids: Iterable[Any] | None = None,
        after: int = 0,
        limit: int = 1000,
    ) -> list[DeliveryRecord]:
        """Deliveries in offset order; pass the last one's offset as `after` for the next page."""
        which = _filter(event_ids, error, type, since, until)
        wanted = None if state is None else _state(state)
        return self._run(
            lambda tx: inspect.deliveries(tx, stream, group, which, state=wanted, after=after, limit=limit),
            write=False,
        )

    def delivery(self, stream: str, group: str, event_id: Any) -> DeliveryRecord:
        """One delivery, with its attempt history; the event by its id or its offset."""
        offset = event_id if isinstance(event_id, int) else None
        known = None if offset is not None else parse_event_id(event_id)
        found = self._run(lambda tx: inspect.delivery(tx, stream, group, known, offset), write=False)
        if found is None:
            raise UnknownEvent(f"{event_id} is no delivery of {group!r} on {stream!r}.")
        return found

    def stats(self) -> Stats:
        """Counts per state, lag and age of every group, in time that does not grow with the log."""
        return self._run(stats.stats, write=False)

    # --- operating -----------------------------------------------------------------------------------------------

    def redrive(
        self,
        stream: str,
        group: str,
        *,
        event_ids: Iterable[Any] | None = None,
        error: str | None = None,
        type: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        all: bool = False,
        dry_run: bool = False,
        by: str | None = None,
    ) -> Moved:
        """DEAD → PENDING with a fresh budget: by id, error, type or time, or all of them."""
        which = _filter(event_ids, error, type, since, until)
        if which == Filter() and not all:
            raise FilterNeeded
        count = self._run(lambda tx: operate.redrive(tx, stream, group, which, dry_run=dry_run, by=by or _whoami()))
        return Moved(count, dry_run)

    def replay(
        self,
        stream: str,
        group: str,
        *,
        event_ids: Iterable[Any] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        type: str | None = None,
        all: bool = False,
        dry_run: bool = False,
        by: str | None = None,
    ) -> Moved:
        """PUBLISHED → PENDING: deliver again what was finished."""
        which = _filter(event_ids, None, type, since, until)
        if which == Filter() and not all:
            raise FilterNeeded
        count = self._run(lambda tx: operate.replay(tx, stream, group, which, dry_run=dry_run, by=by or _whoami()))
        return Moved(count, dry_run)

    def kill(
        self, stream: str, group: str, *, event_ids: Iterable[Any], reason: str = "killed", by: str | None = None
    ) -> Moved:
        """PENDING → CLAIMED → DEAD; `InFlight` for what is being worked on."""
        ids = _ids(event_ids)
        return Moved(self._run(lambda tx: operate.kill(tx, stream, group, ids, reason, by or _whoami())))

    def reschedule(
        self, stream: str, group: str, *, event_ids: Iterable[Any], available_at: datetime, by: str | None = None
    ) -> Moved:
        """Move the time at which PENDING deliveries become due."""
        ids, due = _ids(event_ids), check_time(available_at, "available_at")
        if due is None:
            raise InvalidInput("available_at is missing.")
        return Moved(self._run(lambda tx: operate.reschedule(tx, stream, group, ids, due, by or _whoami())))

    def skip(self, stream: str, group: str, key: str, *, by: str | None = None) -> Moved:
        """Let a key go on that halted at a dead letter."""
        known = check_key(key, "key")
        if known is None:
            raise InvalidInput("key is missing.")
        return Moved(self._run(lambda tx: operate.skip(tx, stream, group, known, by or _whoami())))

    def prune(self, stream: str, *, upto: int, by: str | None = None) -> Moved:
        """Remove events up to an offset that every group has finished with."""
        return Moved(self._run(lambda tx: rewind.prune(tx, stream, _count(upto, "upto"), by or _whoami())))

    # --- claim and settle ----------------------------------------------------------------------------------------

    def claim(
        self, stream: str, group: str, *, limit: int = 100, claimed_by: str, lease_seconds: float | None = None
    ) -> Lease | None:
        """One lease of at most `limit` events, or None if nothing is due."""
        found = self.try_claim(stream, group, limit=limit, claimed_by=claimed_by, lease_seconds=lease_seconds)
        return found if isinstance(found, Lease) else None

    def try_claim(
        self, stream: str, group: str, *, limit: int = 100, claimed_by: str, lease_seconds: float | None = None
    ) -> Lease | Idle:
        """Like `claim`, but says when to come back."""
        most = min(_count(limit, "limit"), limits.BATCH)
        if check_key(claimed_by, "claimed_by") is None:
            raise InvalidInput("claimed_by is missing.")
        if most == 0:
            return Idle(None)
        while True:
            found = self._run(lambda tx: claim.claim(tx, stream, group, most, claimed_by, lease_seconds))
            if isinstance(found, LeaseRow):
                return Lease(self, found, self.store.read_lease(found))
            if isinstance(found, Idle):
                if found.horizon - self._counted >= limits.TALLY_EVERY:  # whoever is idle counts the log
                    self._counted = self._run(lambda tx: tally.advance(tx, blocks=_IDLE_BLOCKS))
                return found
            assert isinstance(found, Passed)

    def settle(self, lease_id: int, token: int, said: Settlement) -> Settled:
        """Apply a settlement; see `Lease.settle`, which makes one."""

        def work(careful: bool) -> Callable[[Transaction], Settled]:
            return lambda tx: settle.settle(tx, lease_id, token, said, emit=appending.emitted, careful=careful)

        try:
            try:
                return self._run(work(careful=False))
            except UserSqlError:
                if not any(effects.execute for effects in said.event_effects.values()):
                    raise
                return self._run(work(careful=True))
        except UserSqlError as error:
            raise effects.effect_error(error) from error

    def extend(self, lease_id: int, token: int, seconds: float | None = None) -> datetime:
        """Keep a lease; see `Lease.extend`."""
        return self._run(lambda tx: settle.extend(tx, lease_id, token, seconds))

    def release(self, lease_id: int, token: int) -> Settled:
        """Give a lease back; see `Lease.release`."""
        return self._run(lambda tx: settle.release(tx, lease_id, token))

    def end(self) -> int:
        """The last offset that was given out, visible or not: what idle workers look at."""
        return self._run(drain.end, write=False)

    def drained(self, stream: str, group: str) -> bool:
        """Whether nothing is left to do up to the horizon: nothing due, in work or waiting for a retry.

        Events dated in the future and keys that halted at a dead letter do not count.
        """
        return self._run(lambda tx: drain.drained(tx, stream, group), write=False)

    def reap(self) -> int:
        """Take back every expired lease, and keep the counts of the log up to date; returns how many leases ended."""
        ended = 0
        for group in self.groups():
            ended += self._run(partial(reap.reap_group, stream=group.stream, group_name=group.group_name))
        before = -1
        while before < self._counted:
            before, self._counted = self._counted, self._run(tally.advance)
        return ended

    def read_state(
        self, group_id: int, keys: Sequence[str]
    ) -> tuple[dict[str, dict[str, Any]], dict[tuple[str, str], int]]:
        """Keyed state and its versions; see `Lease.state`."""
        return self._run(lambda tx: keyed_state.read(tx, group_id, keys, tx.now()), write=False)

    def state(self, stream: str, group: str, key: str) -> dict[str, Any]:
        """The state of one key, for inspection."""

        def work(tx: Transaction) -> dict[str, Any]:
            found, _ = keyed_state.read(tx, groups.get(tx, stream, group).group_id, [key], tx.now())
            return found.get(key, {})

        return self._run(work, write=False)


def _settings(
    stream: str,
    group: str,
    start: Position,
    retry: Retry | None,
    lease_seconds: float,
    ordering: str | None,
    keyed: bool,
    on_dead: str,
    types: Sequence[str] | None,
    headers: Mapping[str, str] | None,
    lanes: int | None,
) -> tuple[Position, groups.Settings]:
    """What a caller says about a group, checked: where it starts, and how it is worked on."""
    check_name(stream, "stream")
    check_name(group, "group")
    if ordering not in (None, "key"):
        raise InvalidInput(f'ordering is None or "key", not {ordering!r}.')
    if on_dead not in ("continue", "halt"):
        raise InvalidInput(f'on_dead is "continue" or "halt", not {on_dead!r}.')
    if not isinstance(lease_seconds, int | float) or not 0 < lease_seconds <= limits.LEASE_SECONDS_MOST:
        raise InvalidInput("lease_seconds must be a positive number of at most seven days.")
    laned = ordering is not None or keyed
    wanted = check_lanes(limits.LANES_DEFAULT if lanes is None else lanes)
    known_types = check_patterns(types)
    if headers is not None:
        appending.one(stream, {"payload": {}, "type": "check", "headers": headers})
    begin = check_time(start, "start") if isinstance(start, datetime) else start
    assert begin is not None
    settings = groups.Settings(
        retry=retry or Retry(),
        lease_seconds=float(lease_seconds),
        ordering=ordering,
        keyed=keyed,
        lanes=wanted if laned else 1,
        on_dead=on_dead,
        types=known_types,
        headers=dict(headers) if headers else None,
    )
    return begin, settings


def _count(value: Any, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidInput(f"{what} must be a whole number of at least 0, not {value!r}.")
    return value


def _state(state: str) -> State:
    try:
        return State(state)
    except ValueError as error:
        raise InvalidInput(f"A state is one of {', '.join(State)}, not {state!r}.") from error


def _ids(event_ids: Iterable[Any]) -> list[uuid.UUID]:
    if isinstance(event_ids, str):
        raise InvalidInput("event_ids must be a list of ids.")
    return list(dict.fromkeys(parse_event_id(one) for one in event_ids))


def _filter(
    event_ids: Iterable[Any] | None,
    error: str | None,
    event_type: str | None,
    since: datetime | None,
    until: datetime | None,
) -> Filter:
    return Filter(
        None if event_ids is None else _ids(event_ids),
        error,
        event_type,
        check_time(since, "since"),
        check_time(until, "until"),
    )


def _whoami() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"

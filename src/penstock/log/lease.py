"""The lease as its holder sees it: its events, and the ways to end it."""

from __future__ import annotations

import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from datetime import datetime
from typing import Any

from penstock.core import limits
from penstock.core.batch import Claimed, Event, Events
from penstock.core.columns import Columns
from penstock.core.event import check_text, parse_event_id
from penstock.core.lease import Effects, LeaseRow, Settled, Settlement, split_released
from penstock.core.signals import Permanent, failure_of, is_a
from penstock.errors import InvalidInput, NotInLease
from penstock.log import checks, keyed_state, release, settle
from penstock.log.claim_lane import TOKEN_BITS
from penstock.log.transact import look
from penstock.stores.base import Store


class Lease:
    """Claimed work. Settle it once, before it expires; a settle needs this object's token."""

    def __init__(self, store: Store, row: LeaseRow, columns: Columns) -> None:
        self._store = store
        self._row = row
        self._versions: dict[tuple[str, str], int] = {}
        self._by_id: dict[uuid.UUID, int] | None = None
        claim = Claimed(row.claimed_at, row.claimed_by, row.attempts, row.replay, row.earlier)
        self.events = Events(columns, row.stream, claim)
        self.expires_at: datetime = row.expires_at
        self.wanted: str | None = row.wanted  # what its run should do, as of the claim or the last extension
        self.cancelled: Mapping[int, str] = {}  # events that should end, by offset, as of the last extension

    @property
    def id(self) -> int:
        """The id of the lease."""
        return self._row.id

    @property
    def row(self) -> LeaseRow:
        """The lease as stored: enough to read its events, here or in another process."""
        return self._row

    @property
    def token(self) -> int:
        """A number that grows with every claim: fence other systems with it."""
        return self._row.token

    @staticmethod
    def id_in(token: int) -> int:
        """Return the id of the lease that a token belongs to."""
        return token >> TOKEN_BITS

    @property
    def stream(self) -> str:
        return self._row.stream

    @property
    def group(self) -> str:
        return self._row.group_name

    @property
    def claimed_by(self) -> str:
        return self._row.claimed_by

    @property
    def is_range(self) -> bool:
        """Whether it is a range of the log, as opposed to a list of exception rows."""
        return self._row.is_range

    @property
    def left(self) -> int | None:
        """Upper bound of the events after it; None if unknown."""
        return self._row.left

    def __len__(self) -> int:
        return len(self.events)

    def __repr__(self) -> str:
        return f"<Lease {self.id} of {self.group} on {self.stream}: {len(self)} events until {self.expires_at}>"

    def read(self) -> Lease:
        """Return the same lease with its events, if it was claimed without them."""
        row = self._row
        return Lease(self._store, row, row.events or self._store.read_lease(row))

    # --- state ---------------------------------------------------------------------------------------------------

    def state(self, keys: Iterable[str] | None = None) -> dict[str, dict[str, Any]]:
        """Return the state of these keys (default: all keys of this lease).

        A later settle fails with `StateConflict` if someone else has changed it.
        """
        wanted = set(self.events.ordering_keys) if keys is None else set(keys)
        asked, group_id = [key for key in wanted if key is not None], self._row.group_id
        found, versions = look(self._store, lambda tx: keyed_state.read(tx, group_id, asked, tx.now()))
        self._versions.update(versions)
        return found

    # --- ending it -----------------------------------------------------------------------------------------------

    def extend(self, seconds: float | None = None) -> datetime:
        """Extend the lease to `seconds` (default: the group's `lease_seconds`) from now; returns the new end."""
        if seconds is not None:
            checks.seconds(seconds, "seconds", limits.LEASE_SECONDS_MOST)
        self.expires_at, self.wanted, self.cancelled = release.extend(self._store, self.id, self.token, seconds)
        return self.expires_at

    def release(self) -> Settled:
        """Give everything back, due at once and without counting a failure."""
        return release.release(self._store, self.id, self.token)

    def settle(
        self,
        *,
        keep: Iterable[Any] = (),
        failed: Mapping[Any, Any] | None = None,
        dead: Mapping[Any, Any] | None = None,
        released: Iterable[Any] = (),
        skipped: Mapping[Any, str] | None = None,
        state: Mapping[str, Mapping[str, Any]] | None = None,
        emit: Sequence[Mapping[str, Any]] = (),
        execute: Sequence[tuple[str, Sequence[Any]]] = (),
        effects: Mapping[Any, Mapping[str, Any]] | None = None,
        due_after_seconds: float = 0.0,
        unavailable: Any = None,
    ) -> Settled:
        """Report outcomes and effects in one transaction; events not named are done.

        `failed` and `dead` map event ids to errors (text or exceptions). `effects` maps event ids to their own
        `state`, `emit` and `execute`, so that a failing event loses only its own effects. `unavailable` is the error
        of a target that is down (text or an exception): it opens the circuit of the group, and becomes the error of the
        `released` events. Events in `keep` still run: each goes on in a lease of its own, in `Settled.kept`. `skipped`
        maps event ids to the reason why they needed no handling; they are done.
        """
        kept = {self._offset(one) for one in keep}
        said = kept or failed or dead or released or skipped or state or emit or execute or effects
        if not said and not due_after_seconds and unavailable is None:  # the happy path: all of it is done
            done = Settlement(upto=self._row.high, versions=self._versions)
            return settle.settle(self._store, self.id, self.token, done)
        back = {self._offset(one) for one in released}
        failing = {self._offset(one): error for one, error in (failed or {}).items()}
        burying = {self._offset(one): failure_of(error) for one, error in (dead or {}).items()}
        burying |= {offset: failure_of(error) for offset, error in failing.items() if is_a(error, Permanent)}
        passed = {self._offset(one): check_text(why, "A reason") or "" for one, why in (skipped or {}).items()}
        named = len(kept) + len(back) + len(failing) + len(dead or {}) + len(passed)
        if named != len(kept | back | failing.keys() | burying.keys() | passed.keys()):
            raise NotInLease("An event is named with two outcomes.")
        checks.seconds(due_after_seconds, "due_after_seconds")
        upto, back = self.split(back, failing.keys() | burying.keys())
        settlement = Settlement(
            failed={o: failure_of(error) for o, error in failing.items() if o not in burying},
            dead=burying,
            released=frozenset(back),
            keep=frozenset(kept),
            skipped=passed,
            upto=upto,
            due_after_seconds=due_after_seconds,
            unavailable=None if unavailable is None else failure_of(unavailable),
            effects=_effects({"state": state or {}, "emit": emit, "execute": execute}),
            event_effects={self._offset(one): _effects(given) for one, given in (effects or {}).items()},
        )
        return self.apply(settlement)

    def split(
        self, back: set[int], rows: Set[int] = frozenset(), touched: int | None = None
    ) -> tuple[int | None, set[int]]:
        """Return where the finished part of a range ends, and the offsets below it that are released one by one.

        `rows` are the offsets that fail, wherever they are. Events after the first `touched` are released, too.
        """
        offsets = self.events.offsets
        if not self._row.is_range:
            return None, back if touched is None else back.union(offsets[touched:])
        assert self._row.low is not None and self._row.high is not None
        upto, singles = split_released(offsets, back, self._row.low, self._row.high, rows, touched)
        return upto, set(singles)

    def apply(self, said: Settlement) -> Settled:
        """Settle with a ready-made `Settlement`, for callers with their own loop."""
        known = replace(said, versions=self._versions, keys=self._keys(said))
        settled = settle.settle(self._store, self.id, self.token, known)
        if not settled.kept:
            return settled
        return replace(settled, kept=[Lease(self._store, one, self._store.read_lease(one)) for one in settled.kept])

    def _keys(self, said: Settlement) -> dict[int, str | None] | None:
        """See `Settlement.keys`."""
        named = {*said.failed, *said.dead, *said.released, *said.suspects, *said.skipped}
        if not (named and self._row.ordered and self._row.is_range and len(self.events)):
            return None
        offsets = self.events.offsets
        places = {offset: bisect_left(offsets, offset) for offset in named}
        members = {o: place for o, place in places.items() if place < len(offsets) and offsets[place] == o}
        end = len(offsets) if said.upto is None else bisect_right(offsets, max(said.upto, *named))
        keyed = {offsets[place]: key for place, key in self.events.of_same_keys([*members.values()], end)}
        return keyed | {offset: None for offset in members if offset not in keyed}

    def _offset(self, one: Any) -> int:
        """Return the offset of a member, given as event, event id or its text."""
        if isinstance(one, Event):
            return one.offset
        if self._by_id is None:
            self._by_id = {event.event_id: event.offset for event in self.events}
        offset = self._by_id.get(parse_event_id(one))
        if offset is None:
            raise NotInLease(f"{one} is not in lease {self.id}.")
        return offset


def _effects(given: Mapping[str, Any]) -> Effects:
    odd = given.keys() - {"state", "emit", "execute"}
    if odd:
        raise InvalidInput(f"Effects are state, emit and execute, not {sorted(odd)[0]!r}.")
    execute = []
    for item in given.get("execute", ()):
        if isinstance(item, str) or len(item) != 2 or not isinstance(item[0], str):
            raise InvalidInput("execute takes pairs of a statement and its parameters.")
        execute.append((item[0], tuple(item[1])))
    return Effects(dict(given.get("state", {})), tuple(given.get("emit", ())), tuple(execute))

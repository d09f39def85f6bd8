"""The log: everything an application calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any

from penstock.core import limits
from penstock.core.columns import RowColumns
from penstock.core.event import check_key
from penstock.core.lease import Idle, LeaseRow, Passed, Settled, Settlement
from penstock.errors import InvalidInput, UnknownGroup
from penstock.log import appending, checking
from penstock.log.grouping import Grouping
from penstock.log.inspecting import Inspecting
from penstock.log.lease import Lease
from penstock.log.operating import Moved, Operating
from penstock.log.readers import Reading
from penstock.log.runs import Runs
from penstock.log.transacting import again
from penstock.log.writing import Writing
from penstock.stores import claim, effects, keyed_state, reap, settle, tally
from penstock.stores.base import Store, Transaction, UserSqlError

__all__ = ["Log", "Moved"]
_IDLE_BLOCKS = 5


class Log(Writing, Grouping, Inspecting, Operating, Reading, Runs):
    """A durable event log in one database, made by `penstock.open(url)`. Thread-safe; open it once per process.

    Append, read, groups, inspection and operating are in the classes above; claim and settle are here.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._simple: set[tuple[str, str]] = set()  # groups whose last claim found nothing but events as they come
        self._counted = 0  # how far the tally is known to reach
        self._noted, self._note_after = 0, 0.0  # the horizon that standbys were told last, and when they may be again

    def claim(
        self,
        stream: str,
        group: str,
        *,
        limit: int = 100,
        claimed_by: str,
        lease_seconds: float | None = None,
        run: int | None = None,
    ) -> Lease | None:
        """One lease of at most `limit` events, or None if nothing is due. `run` is the engine's run it counts for."""
        found = self.try_claim(stream, group, limit=limit, claimed_by=claimed_by, lease_seconds=lease_seconds, run=run)
        return found if isinstance(found, Lease) else None

    def try_claim(
        self,
        stream: str,
        group: str,
        *,
        limit: int = 100,
        claimed_by: str,
        lease_seconds: float | None = None,
        run: int | None = None,
    ) -> Lease | Idle:
        """Like `claim`, but says when to come back."""
        most = min(checking.count(limit, "limit"), limits.BATCH)
        found = self._claim(stream, group, most, claimed_by, lease_seconds, run)
        if not isinstance(found, LeaseRow):
            return found
        return Lease(self, found, found.events or self.store.read_lease(found))

    def try_claim_unread(
        self, stream: str, group: str, *, limit: int, claimed_by: str, run: int | None = None
    ) -> Lease | Idle:
        """Like `try_claim`, for more events than one process wants to hold: the lease says where they are, and has
        none in hand."""
        most = min(checking.count(limit, "limit"), limits.PIPELINE_BATCH)
        found = self._claim(stream, group, most, claimed_by, None, run)
        return Lease(self, found, RowColumns([])) if isinstance(found, LeaseRow) else found

    def _claim(
        self, stream: str, group: str, most: int, claimed_by: str, lease_seconds: float | None, run: int | None
    ) -> LeaseRow | Idle:
        if check_key(claimed_by, "claimed_by") is None:
            raise InvalidInput("claimed_by is missing.")
        if lease_seconds is not None:
            checking.seconds(lease_seconds, "lease_seconds", limits.LEASE_SECONDS_MOST)
        if most == 0:
            return Idle(None)
        at_once = self._claim_at_once(stream, group, most, claimed_by, lease_seconds, run)
        if at_once is not None:
            return at_once
        while True:
            found = self._run(
                lambda tx: claim.claim(
                    tx, stream, group, most, claimed_by, lease_seconds, run=run, read=self.store.lease_query
                )
            )
            if isinstance(found, LeaseRow):
                if found.simple and self.store.claims_at_once:
                    self._simple.add((stream, group))
                return found
            if isinstance(found, Idle):
                if found.unavailable is None:  # else nobody asked who was appending
                    self._note_horizon(found.horizon)
                if found.horizon - self._counted >= limits.TALLY_EVERY:  # whoever is idle counts the log
                    self._counted = self._run(lambda tx: tally.advance(tx, blocks=_IDLE_BLOCKS))
                return found
            assert isinstance(found, Passed)

    def _claim_at_once(
        self, stream: str, group: str, most: int, claimed_by: str, lease_seconds: float | None, run: int | None
    ) -> LeaseRow | None:
        """The quick way, for small leases of groups that were as simple as that the last time."""
        if most > limits.READ_WITH_CLAIM or (stream, group) not in self._simple:
            return None
        found = again(lambda: claim.at_once(self.store, stream, group, most, claimed_by, lease_seconds, run))
        if found is None:
            self._simple.discard((stream, group))
        return found if isinstance(found, LeaseRow) else None

    def _note_horizon(self, horizon: int) -> None:
        """Tell standbys how far they may be read; at most once a second, and only if there is news."""
        if not self.store.has_standbys or horizon <= self._noted or time.monotonic() < self._note_after:
            return
        self._noted, self._note_after = horizon, time.monotonic() + limits.NOTE_SECONDS
        self._run(lambda tx: tx.run("horizon.note", upto=horizon))

    def settle(
        self, lease_id: int, token: int, said: Settlement, *, move: Callable[[Transaction], None] | None = None
    ) -> Settled:
        """Apply a settlement; see `Lease.settle`, which makes one."""

        def work(careful: bool) -> Callable[[Transaction], Settled]:
            def settled(tx: Transaction) -> Settled:
                answer = settle.settle(tx, lease_id, token, said, emit=appending.emitted, careful=careful, move=move)
                emits = said.effects.emit or any(one.emit for one in said.event_effects.values())
                if emits or answer.released:  # others may wait for it
                    tx.wake()
                return answer

            return settled

        if move is None and settle.says_done(said):
            done = again(lambda: settle.settle_whole(self.store, lease_id, token, said))
            if done is not None:
                return done
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

        def work(tx: Transaction) -> Settled:
            answer = settle.release(tx, lease_id, token)
            tx.wake()
            return answer

        return self._run(work)

    def reap(
        self,
        *,
        stream: str | None = None,
        group: str | None = None,
        groups: Sequence[tuple[str, str]] | None = None,
    ) -> int:
        """Take back expired leases, and keep the counts of the log up to date; returns how many leases ended.

        Of all groups, of a stream's, of one, or of these `(stream, group)` pairs. Groups without an expired lease are
        not locked.
        """
        named = None if groups is None else [(one[0], one[1]) for one in groups]
        if stream is not None or group is not None:
            named = [(one.stream, one.group_name) for one in self.groups(stream) if group in (None, one.group_name)]
        ended = 0
        for where, name in self._run(lambda tx: reap.expired_groups(tx, named), write=False):
            with suppress(UnknownGroup):  # deleted in the meantime
                ended += self._run(partial(reap.reap_group, stream=where, group_name=name))
        if self.store.has_standbys:
            self._note_horizon(self._run(lambda tx: tx.horizon(), write=False))
        before = -1
        while before < self._counted:
            before, self._counted = self._counted, self._run(tally.advance)
        return ended

    def read_state(
        self, group_id: int, keys: Sequence[str]
    ) -> tuple[dict[str, dict[str, Any]], dict[tuple[str, str], int]]:
        """Keyed state and its versions; see `Lease.state`."""
        return self._run(lambda tx: keyed_state.read(tx, group_id, keys, tx.now()), write=False)

"""Side jobs of claim and reap: count the log, and record the horizon for standbys."""

from __future__ import annotations

import time

from penstock.core import limits
from penstock.core.lease import Idle
from penstock.log import tally
from penstock.log.transact import look, transact
from penstock.stores.base import Store

_IDLE_BLOCKS = 5


class Bookkeeping:
    """How far one open log has been counted, and the horizon last recorded for standbys."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counted = 0
        self._noted, self._note_after = 0, 0.0

    def idle(self, idle: Idle) -> None:
        """Count the log after a claim that found nothing: the worker is idle anyway."""
        if idle.unavailable is None:  # otherwise the claim did not compute the horizon
            self._note_horizon(idle.horizon)
        if idle.horizon - self._counted >= limits.TALLY_EVERY:
            self._counted = transact(self._store, lambda tx: tally.advance(tx, blocks=_IDLE_BLOCKS))

    def catch_up(self) -> None:
        """Count the log as far as possible."""
        if self._store.has_standbys:
            self._note_horizon(look(self._store, lambda tx: tx.horizon()))
        before = -1
        while before < self._counted:
            before, self._counted = self._counted, transact(self._store, tally.advance)

    def _note_horizon(self, horizon: int) -> None:
        """Record the horizon for standbys, at most once a second and only if it has changed."""
        if not self._store.has_standbys or horizon <= self._noted or time.monotonic() < self._note_after:
            return
        self._noted, self._note_after = horizon, time.monotonic() + limits.NOTE_SECONDS
        transact(self._store, lambda tx: tx.run("horizon.note", upto=horizon))

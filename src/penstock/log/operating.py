"""What an operator does to deliveries, each action with a row in the audit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.core.event import check_key, check_text, check_time
from penstock.errors import FilterNeeded, InvalidInput
from penstock.log import checking
from penstock.log.transacting import Transacting
from penstock.stores import operate, prune
from penstock.stores.operate import Filter


@dataclass(frozen=True, slots=True)
class Moved:
    """How many deliveries an operator's action moved (or, on a dry run, would move)."""

    count: int
    dry_run: bool = False


class Operating(Transacting):
    """Again, never, later, or gone."""

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
        which = checking.filter_of(event_ids, error, type, since, until)
        if which == Filter() and not all:
            raise FilterNeeded
        count = self._run(lambda tx: operate.redrive(tx, stream, group, which, dry_run=dry_run, by=checking.author(by)))
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
        which = checking.filter_of(event_ids, None, type, since, until)
        if which == Filter() and not all:
            raise FilterNeeded
        count = self._run(lambda tx: operate.replay(tx, stream, group, which, dry_run=dry_run, by=checking.author(by)))
        return Moved(count, dry_run)

    def kill(
        self, stream: str, group: str, *, event_ids: Iterable[Any], reason: str = "killed", by: str | None = None
    ) -> Moved:
        """PENDING → CLAIMED → DEAD; `InFlight` for what is being worked on."""
        ids, why = checking.ids_of(event_ids), check_text(reason, "reason") or "killed"
        return Moved(self._run(lambda tx: operate.kill(tx, stream, group, ids, why, checking.author(by))))

    def reschedule(
        self, stream: str, group: str, *, event_ids: Iterable[Any], available_at: datetime, by: str | None = None
    ) -> Moved:
        """Move the time at which PENDING deliveries become due."""
        ids, due = checking.ids_of(event_ids), check_time(available_at, "available_at")
        if due is None:
            raise InvalidInput("available_at is missing.")
        return Moved(self._run(lambda tx: operate.reschedule(tx, stream, group, ids, due, checking.author(by))))

    def skip(self, stream: str, group: str, key: str, *, by: str | None = None) -> Moved:
        """Let a key go on that halted at a dead letter."""
        known = check_key(key, "key")
        if known is None:
            raise InvalidInput("key is missing.")
        return Moved(self._run(lambda tx: operate.skip(tx, stream, group, known, checking.author(by))))

    def prune(
        self,
        stream: str,
        *,
        before: datetime | None = None,
        upto: int | None = None,
        keep_dead: bool = True,
        by: str | None = None,
    ) -> Moved:
        """Remove events created before a time, or up to an offset, that every group has finished with.

        It goes around what is needed: what a group has not finished, and, with `keep_dead`, dead letters. Leases, rows
        and history of what is removed go along. Many short transactions: stopped in the middle, it is done so far.
        """
        if (before is None) == (upto is None):
            raise InvalidInput("Say how far to prune: either before= (a time) or upto= (an offset).")
        moment = check_time(before, "before")
        position = checking.count(upto, "upto") if moment is None else moment
        target = self._run(lambda tx: prune.target(tx, stream, position), write=False)
        pruning = prune.Pruning(stream, target, keep_dead, checking.author(by))
        return Moved(pruning.run(self._run))

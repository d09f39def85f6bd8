"""Apply the policies of streams: remove what is old enough and finished, in short transactions.

A policy says itself when it is worth a look, so that a round with nothing to do is one look-up. From the left, a batch
at a time, events are removed as far as every group has got; what has to stay (a dead letter, an event that is retried)
is passed, and looked at again in the next pass. A batch in which everything stays locks nothing.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from penstock.core import limits
from penstock.core.group import Group
from penstock.core.timeline import SET_BACK
from penstock.errors import StoreUnavailable
from penstock.log import groups, positions
from penstock.log.prune import Batch, thin
from penstock.log.retention.policies import archived_upto
from penstock.log.transact import look, transact
from penstock.stores.base import Row, Store, Transaction


@dataclass(frozen=True, slots=True)
class Expired:
    """The result of a round."""

    events: int
    more: bool  # whether it ended before everything was removed


@dataclass(slots=True)
class _Expiry(Batch):
    """Removes a batch as the policy of its stream says, with the leases of which nothing is left."""

    def _remove(self, tx: Transaction, known: list[Group], kept: list[int], last: int, where: dict[str, Any]) -> None:
        named = {
            one.group_id: [
                int(row.id) for row in tx.rows("policy.held_leases", group_id=one.group_id, kept=kept, **_range(where))
            ]
            for one in known
        }
        tx.run("policy.remove", kept=kept, now=tx.now(), **where)
        for group_id, ids in named.items():
            tx.run("policy.leases", group_id=group_id, ids=ids, **_range(where))


def _range(where: dict[str, Any]) -> dict[str, Any]:
    return {"low": where["low"], "high": where["high"]}


def apply_retention(store: Store, steps: int = limits.POLICY_STEPS) -> Expired:
    """Remove some of what policies let go, of all streams in turn; trouble with one does not keep the others."""
    due = deque(row.stream for row in look(store, _due))
    events = 0
    wrong: Exception | None = None
    while due and steps:
        stream = due.popleft()
        steps -= 1
        try:
            removed = transact(store, partial(_step, stream=stream))
        except StoreUnavailable:
            raise
        except Exception as error:
            wrong = wrong or error
            continue
        events += removed.events
        if removed.more:
            due.append(stream)
    if wrong is not None:
        raise wrong
    return Expired(events, bool(due))


def _due(tx: Transaction) -> list[Row]:
    now = tx.now()
    return tx.rows("policy.due", now=now, latest=now + SET_BACK, most=limits.BATCH)


def _step(tx: Transaction, stream: str) -> Expired:
    """Remove one batch of a stream, if no other process is at it."""
    policy = tx.one("policy.turn", stream=stream, now=tx.now(), latest=tx.now() + SET_BACK)
    if policy is None:
        return Expired(0, more=False)
    now = tx.now()
    swept, passed_at = int(policy.swept), policy.passed_at
    if (
        passed_at is None
        or passed_at > now
        or passed_at + _between(policy.keep, 10, limits.RETENTION_PASS_SECONDS) <= now
    ):
        _drop_leases(tx, stream, swept)
        swept, passed_at = 0, now
    dead_before = None if policy.keep_dead is None else now - timedelta(seconds=policy.keep_dead)
    batch = _Expiry(stream, may_go_upto(tx, policy), dead_before=dead_before, at=swept)
    removed, more = _remove_batch(tx, batch, now)
    if removed and not more:
        thin(tx, stream, batch.at)
    next_at = now if more else now + _between(policy.keep, 100, limits.RETENTION_LOOK_SECONDS)
    tx.run("policy.went", stream=stream, swept=batch.at, passed_at=passed_at, next_at=next_at)
    return Expired(removed, more)


def _remove_batch(tx: Transaction, batch: _Expiry, now: datetime) -> tuple[int, bool]:
    """Remove the next batch, up to what is held or not finished; returns how many events went, and if there is more."""
    whole = batch.upto
    for hold in tx.rows("policy.holds", stream=batch.stream, now=now):
        if hold.low <= batch.at < hold.high:
            batch.at = int(hold.high)
        elif batch.at < hold.low < batch.upto:
            batch.upto = int(hold.low)
            break
    if batch.at >= batch.upto:
        return 0, batch.at < whole
    waits = first_unfinished(tx, batch.stream, batch.at, batch.upto)
    if waits is not None:
        whole = batch.upto = min(batch.upto, max(batch.at, int(waits.upto)))
    removed, high = 0, batch.at
    if batch.at < batch.upto:
        high, _, types = batch.examine(tx, groups.every(tx, batch.stream))
        if types:
            removed, high = batch.remove_next(tx)
    batch.at = high
    return removed, high < whole


def may_go_upto(tx: Transaction, policy: Row) -> int:
    """Return up to where events are old enough, and archived if they must be."""
    upto = old_enough(tx, policy.stream, policy.keep)
    return upto if policy.archive is None else min(upto, archived_upto(tx, policy.stream, policy.archive))


def first_unfinished(tx: Transaction, stream: str, low: int, high: int) -> Row | None:
    """Return which group has not finished the next batch of events above `low`, and up to where it has."""
    last = tx.one("source.nth", stream=stream, low=low, high=high, skip=limits.PRUNE_BATCH - 1)
    return tx.one("policy.waits", stream=stream, low=low, high=high if last is None else int(last.offset))


def old_enough(tx: Transaction, stream: str, keep: float) -> int:
    """Return up to where the events of a stream are older than so many seconds, never above the horizon."""
    return min(positions.offset_of(tx, stream, tx.now() - timedelta(seconds=keep)), tx.horizon())


def _drop_leases(tx: Transaction, stream: str, upto: int) -> None:
    """Remove leases that an earlier pass had to leave: they were the newest of their lane, or held what is gone now."""
    for one in groups.every(tx, stream):
        groups.locked(tx, one.stream, one.group_name)
        tx.run("policy.leases", group_id=one.group_id, ids=[], low=0, high=upto)


def _between(keep: float, part: int, least_most: tuple[float, float]) -> timedelta:
    least, most = least_most
    return timedelta(seconds=min(most, max(least, keep / part)))

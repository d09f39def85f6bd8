"""Settle: one transaction, once per lease, only with the lease's token."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from penstock.core import codec, fingerprint
from penstock.core.event import NewEvent
from penstock.core.job import CANCELLED
from penstock.core.lease import Effects, Failure, LeaseOutcome, Settled, Settlement
from penstock.core.user_sql import UserSqlError
from penstock.errors import SettleMismatch, UnattributedEffect
from penstock.log import circuit, crash_guard, keep, new_events, release
from penstock.log.effects import Applied, effect_error
from penstock.log.lease_end import end_lease
from penstock.log.outcomes import Jitter, remember_kinds
from penstock.log.settle_members import MemberOutcomes
from penstock.log.transact import repeat, transact
from penstock.stores.base import Store, Transaction


def says_done(said: Settlement) -> bool:
    """Return whether a settlement only reports that a range is done up to an offset."""
    return said.upto is not None and said == Settlement(upto=said.upto, versions=said.versions)


def settle_whole(store: Store, lease_id: int, token: int, said: Settlement) -> Settled | None:
    """Settle a whole range as done, in one statement; None if this needs the full settle."""
    digest = codec.digest({**_DONE, "upto": said.upto})
    rows = store.only("settle.whole", id=lease_id, token=token, upto=said.upto, digest=digest, now=store.told_now)
    return Settled(rows[0][0], 0, 0, 0) if rows else None


def settle(
    store: Store, lease_id: int, token: int, said: Settlement, move: Callable[[Transaction], None] | None = None
) -> Settled:
    """Apply a settlement in one transaction.

    If a user's statement fails, the settlement is applied again event by event, so that only that event fails.
    """

    def work(careful: bool) -> Callable[[Transaction], Settled]:
        def settled(tx: Transaction) -> Settled:
            answer = settle_in(tx, lease_id, token, said, careful=careful, move=move)
            emits = said.effects.emit or any(one.emit for one in said.event_effects.values())
            if emits or answer.released:  # other workers may wait for it
                tx.wake()
            return answer

        return settled

    if move is None and says_done(said):
        done = repeat(lambda: settle_whole(store, lease_id, token, said))
        if done is not None:
            return done
    try:
        try:
            return transact(store, work(careful=False))
        except UserSqlError:
            if not any(effects.execute for effects in said.event_effects.values()):
                raise
            return transact(store, work(careful=True))
    except UserSqlError as error:
        raise effect_error(error) from error


def settle_in(
    tx: Transaction,
    lease_id: int,
    token: int,
    said: Settlement,
    *,
    emit: Callable[[Any], NewEvent] = new_events.emitted,
    jitter: Jitter = random.random,
    careful: bool = False,
    move: Callable[[Transaction], None] | None = None,
) -> Settled:
    """Apply a settlement, all of it or nothing, in the caller's transaction.

    With `careful` every event's effects run in their own savepoint, so that only the event that caused an error fails.
    `move` moves what `said.moves` names into place, in the same transaction.
    """
    digest = codec.digest(_plain(said))
    if said.keep:
        keep.lock_group_of(tx, lease_id)
    lease, group = release.locked(tx, lease_id, token)
    if lease.outcome == LeaseOutcome.SETTLED:
        if lease.digest != digest:
            raise SettleMismatch(f"Lease {lease_id} was settled with other outcomes.")
        assert lease.answer is not None, "a settled lease has an answer"
        published, failed, dead, released, *kept_ids = lease.answer
        return Settled(published, failed, dead, released, keep.stored(tx, kept_ids))
    now = release.check_open(tx, lease)
    if said.unavailable is not None:
        said = replace(said, unavailable=fingerprint.complete(said.unavailable))
    work = MemberOutcomes(tx, lease, group, now, jitter, said)
    work.check_members(careful)
    work.bury_the_old()
    # First determine which events are released: an event that does not succeed has no effects.
    unsuccessful = work.unsuccessful() if said.event_effects or said.effects else frozenset()
    if said.effects and (unsuccessful or work.has_tail):
        raise UnattributedEffect
    effects = Applied(tx, group, now, emit, {offset: row.ordering_key for offset, row in work.known.items()})
    effects.apply(said, without=unsuccessful, careful=careful)
    work.failed.update(effects.culprits)
    work.released.update(effects.dependents)
    if move is not None:  # before a range goes back: constraints are checked here, and the lease is still open
        move(tx)
    kept = keep.open_kept(tx, group, lease, said.keep, now) if said.keep else []
    answer = replace(work.write(), kept=kept)
    told = [offset for offset, why in work.dead.items() if why.code == CANCELLED]
    if told:
        tx.later("cancel.answered", group_id=group.group_id, offsets=told)
    if said.results:
        tx.later("jobs.results", rows=work.results(), now=now)
    if effects.emitted:
        tx.append(effects.emitted, unique=False)
    if said.unavailable is not None or group.circuit is not None:
        circuit.settled(tx, group, lease_id, said.unavailable, answer, now)
    remember_kinds(tx, work.failures(), now)
    end_lease(tx, lease, LeaseOutcome.SETTLED, answer, now, upto=work.upto, digest=digest, because=said.unavailable)
    crash_guard.watch(tx, group, (failure.code for failure in work.failed.values()), lease.claimed_by)
    return answer


def _plain(said: Settlement) -> dict[str, Any]:
    def effects(one: Effects) -> list[Any]:
        return [
            {key: dict(values) for key, values in one.state.items()},
            [list(event) if isinstance(event, NewEvent) else dict(event) for event in one.emit],
            [[sql, list(params)] for sql, params in one.execute],
        ]

    def failures(some: Mapping[int, Failure]) -> dict[str, list[Any]]:
        return {str(o): [f.code, f.message, f.retry_after_seconds] for o, f in some.items()}

    more: dict[str, Any] = {}
    if said.keep:
        more["keep"] = sorted(said.keep)
    if said.results:
        more["results"] = {str(offset): text for offset, text in said.results.items()}
    if said.moves:
        more["moves"] = sorted(said.moves)
    if said.unavailable is not None:
        more["unavailable"] = list(said.unavailable[:3])
    if said.suspects:
        more["suspects"] = failures(said.suspects)
    if said.skipped:
        more["skipped"] = {str(offset): reason for offset, reason in said.skipped.items()}
    return more | {
        "failed": failures(said.failed),
        "dead": failures(said.dead),
        "released": sorted(said.released),
        "upto": said.upto,
        "effects": effects(said.effects),
        "event_effects": {str(offset): effects(one) for offset, one in said.event_effects.items()},
    }


_DONE = _plain(Settlement())

"""Turn the results of a lease into one settle; settle again without an effect that the database refuses."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from penstock.core import codec, fingerprint
from penstock.core.event import NewEvent
from penstock.core.lease import Effects, Failure, Settled, Settlement
from penstock.engine.handlers.state import as_written
from penstock.engine.work import Work
from penstock.errors import DuplicateMismatch, StateConflict
from penstock.log.lease import Lease


class LeaseSettlement:
    """The settle of one lease. Safe to repeat after a lost answer: it reports the same again."""

    def __init__(self, lease: Lease, work: Work, *, opens_circuit: bool = True) -> None:
        self._lease = lease
        self._work = work
        self._unavailable = work.unavailable if opens_circuit else None
        self._refused: dict[int, Failure] = {}

    @property
    def lease_id(self) -> int:
        """The id of the lease."""
        return self._lease.id

    @property
    def count(self) -> int:
        """The number of events of the lease."""
        return len(self._work.events)

    def settle(self) -> Settled:
        """Report everything in one transaction. A refused effect fails only the event that asked for it."""
        while True:
            settlement = _settlement(self._lease, self._work, self._refused, self._unavailable)
            try:
                return self._lease.apply(settlement)
            except DuplicateMismatch as error:
                culprit = _emitter(self._work, error, self._refused)
                if culprit is None:
                    raise
                self._refused[culprit] = fingerprint.of_text(error.code, error.message)

    def give_up(self, error: Exception) -> Settled:
        """End a lease that cannot be settled: fail a single event, release several unblamed."""
        if len(self._work.events) > 1 or isinstance(error, StateConflict):
            return self._lease.release()
        failure = fingerprint.of_text(codec.error_code(error), f"settle_failed: {codec.error_text(error)}")
        upto, _ = self._lease.split(set())
        return self._lease.apply(Settlement(failed={self._work.events.offsets[0]: failure}, upto=upto))


def _settlement(lease: Lease, work: Work, refused: Mapping[int, Failure], unavailable: Failure | None) -> Settlement:
    offsets = work.events.offsets
    failed = {**work.failed, **refused}
    dependents = _dependents(work, refused)
    back = {offsets[place] for place in (*work.unfinished(), *dependents)}
    rows = {offsets[place] for place in (*failed, *work.dead, *work.suspects)}
    upto, back = lease.split(back, rows, work.touched())
    partly = bool(failed or work.dead or work.suspects or back or upto != lease.row.high)
    return Settlement(
        failed={offsets[place]: why for place, why in failed.items()},
        dead={offsets[place]: why for place, why in work.dead.items()},
        released=frozenset(back),
        suspects={offsets[place]: why for place, why in work.suspects.items()},
        skipped={offsets[place]: why for place, why in work.skipped.items()},
        upto=upto,
        unavailable=unavailable,
        event_effects=_effects(work, {*refused, *dependents}, partly=partly),
    )


def _dependents(work: Work, refused: Mapping[int, Failure]) -> set[int]:
    """Return later events of a refused event's key: they may depend on it, and are released with it."""
    first: dict[str, int] = {}
    for place in sorted(refused):
        if (key := work.events.ordering_keys[place]) is not None:
            first.setdefault(key, place)
    keys = work.events.ordering_keys
    return {
        place
        for place in (work.effects if first else ())
        if place not in refused and (key := keys[place]) is not None and place > first.get(key, place)
    }


def _effects(work: Work, without: Set[int], *, partly: bool) -> dict[int, Effects]:
    """Return the effects of the events that succeeded, by offset.

    State that was merged by key belongs to its last writer; all writers are named if part of the lease did not succeed.
    """
    offsets = work.events.offsets
    state: dict[int, dict[str, dict[str, Any]]] = {}
    emit: dict[int, list[NewEvent]] = {}
    writers: dict[int, list[int]] = {}
    for key, written in work.written.items():
        places = work.writers[key]
        state[places[-1]] = {key: as_written(written)}
        if partly:
            writers[places[-1]] = [offsets[place] for place in places]
    for place, event in work.emit:
        emit.setdefault(place, []).append(event)
    effects = {
        offsets[place]: Effects(state.get(place, {}), emit.get(place, ()), (), writers.get(place, ()))
        for place in sorted({*state, *emit})
    }
    for place, one in work.effects.items():
        if place not in without:
            own = {one.key: as_written(one.state)} if one.key is not None else {}
            effects[offsets[place]] = Effects(own, [event for event, _ in one.emit], one.execute)
    return effects


def _emitter(work: Work, error: DuplicateMismatch, refused: Mapping[int, Failure]) -> int | None:
    """Find the event that emitted the id that is taken."""
    taken = error.details.get("event_id")
    for place, one in work.effects.items():
        if place not in refused and any(event.event_id == taken for event, _ in one.emit):
            return place
    return None

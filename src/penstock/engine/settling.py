"""From what became of a lease's events to one settle, and to another one where the database refuses an effect."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.core import codec
from penstock.core.lease import Effects, Failure, Settled, Settlement
from penstock.engine.context import Recorded
from penstock.engine.state import as_written
from penstock.engine.work import Work
from penstock.errors import DuplicateMismatch, EffectFailed, StateConflict
from penstock.log.lease import Lease


class Settling:
    """One lease's settle. It may be repeated: after an answer that was lost it says the same again."""

    def __init__(self, lease: Lease, work: Work, *, opens_circuit: bool = True) -> None:
        self._lease = lease
        self._work = work
        self._unavailable = work.unavailable if opens_circuit else None
        self._refused: dict[int, Failure] = {}
        self._itemized = False

    @property
    def count(self) -> int:
        """How many events it is about."""
        return len(self._work.events)

    def settle(self) -> Settled:
        """Report everything in one transaction. An effect that is refused fails the one event that asked for it."""
        while True:
            said = _settlement(self._lease, self._work, self._refused, self._unavailable, self._itemized)
            try:
                return self._lease.apply(said)
            except EffectFailed:
                if self._itemized or not self._work.effects:
                    raise
                self._itemized = True  # the store now finds the culprit, with a savepoint per event
            except DuplicateMismatch as error:
                culprit = _emitter(self._work, error, self._refused)
                if culprit is None:
                    raise
                self._refused[culprit] = Failure(error.code, error.message)

    def give_up(self, error: Exception) -> Settled:
        """The settle itself is impossible. An event that is alone with it is to blame; several go back unblamed."""
        if len(self._work.events) > 1 or isinstance(error, StateConflict):
            return self._lease.release()
        failure = Failure(codec.error_code(error), f"settle_failed: {codec.error_text(error)}")
        upto, _ = self._lease.split(set())
        return self._lease.apply(Settlement(failed={self._work.events.offsets[0]: failure}, upto=upto))


def _settlement(
    lease: Lease, work: Work, refused: Mapping[int, Failure], unavailable: Failure | None, itemized: bool
) -> Settlement:
    offsets = work.events.offsets
    # What its key did behind a refused event may rest on it, and goes back with it.
    first: dict[str | None, int] = {}
    for place in sorted(refused):
        first.setdefault(work.events.ordering_keys[place], place)
    first.pop(None, None)
    resting = {
        place
        for place in (work.effects if first else ())
        if place not in refused and place > first.get(work.events.ordering_keys[place], place)
    }
    back = {offsets[place] for place in work.unfinished()} | {offsets[place] for place in resting}
    upto, back = lease.split(back)
    wanted = {place: one for place, one in work.effects.items() if place not in refused and place not in resting}
    return Settlement(
        failed={offsets[place]: why for place, why in {**work.failed, **refused}.items()},
        dead={offsets[place]: why for place, why in work.dead.items()},
        released=frozenset(back),
        upto=upto,
        unavailable=unavailable,
        effects=_together(work, {} if itemized else wanted),
        event_effects={offsets[place]: _effects(one) for place, one in wanted.items()} if itemized else {},
    )


def _together(work: Work, wanted: Mapping[int, Recorded]) -> Effects:
    """The effects of many events as one: the last value of a state counts, everything else follows in order."""
    if not (work.written or work.emit or wanted):
        return Effects()
    written = {key: dict(values) for key, values in work.written.items()}
    emit = list(work.emit)
    execute = []
    for _, one in sorted(wanted.items()):
        if one.key is not None:
            written.setdefault(one.key, {}).update(one.state)
        emit += [event for event, _ in one.emit]
        execute += one.execute
    return Effects({key: as_written(values) for key, values in written.items()}, emit, execute)


def _effects(one: Recorded) -> Effects:
    state = {one.key: as_written(one.state)} if one.key is not None else {}
    return Effects(state, [event for event, _ in one.emit], one.execute)


def _emitter(work: Work, error: DuplicateMismatch, refused: Mapping[int, Failure]) -> int | None:
    """Who emitted the event whose id is taken."""
    taken = error.details.get("event_id")
    for place, one in work.effects.items():
        if place not in refused and any(event.event_id == taken for event, _ in one.emit):
            return place
    return None

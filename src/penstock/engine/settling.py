"""From what became of a lease's events to one settle, and to another one where the database refuses an effect."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.core.lease import Effects, Failure, Settled, Settlement
from penstock.engine.context import Recorded
from penstock.engine.state import as_written
from penstock.engine.work import Work
from penstock.errors import DuplicateMismatch, EffectFailed
from penstock.log.lease import Lease


def settle(lease: Lease, work: Work, due_after_seconds: float = 0.0) -> Settled:
    """Report everything in one transaction. An effect that is refused fails the one event that asked for it."""
    refused: dict[int, Failure] = {}
    itemized = False
    while True:
        said = _settlement(lease, work, refused, due_after_seconds, itemized)
        try:
            return lease.apply(said)
        except EffectFailed:
            if itemized or not work.effects:
                raise
            itemized = True  # the store now finds the culprit, with a savepoint per event
        except DuplicateMismatch as error:
            culprit = _emitter(work, error, refused)
            if culprit is None:
                raise
            refused[culprit] = Failure(error.code, error.message)


def _settlement(
    lease: Lease, work: Work, refused: Mapping[int, Failure], due_after_seconds: float, itemized: bool
) -> Settlement:
    offsets = work.events.offsets
    # What its key did behind a refused event may rest on it, and goes back with it.
    keys = {key for place in refused if (key := work.events.ordering_keys[place]) is not None}
    first = min(refused, default=0)
    resting = {
        place
        for place, recorded in work.effects.items()
        if keys and place > first and place not in refused and work.events.ordering_keys[place] in keys
    }
    back = {offsets[place] for place in work.unfinished()} | {offsets[place] for place in resting}
    upto, back = lease.split(back)
    wanted = {place: one for place, one in work.effects.items() if place not in refused and place not in resting}
    return Settlement(
        failed={offsets[place]: why for place, why in {**work.failed, **refused}.items()},
        dead={offsets[place]: why for place, why in work.dead.items()},
        released=frozenset(back),
        upto=upto,
        due_after_seconds=due_after_seconds,
        effects=_together(work, {} if itemized else wanted),
        event_effects={offsets[place]: _effects(one) for place, one in wanted.items()} if itemized else {},
    )


def _together(work: Work, wanted: Mapping[int, Recorded]) -> Effects:
    """The effects of many events as one: the last value of a state counts, everything else follows in order."""
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

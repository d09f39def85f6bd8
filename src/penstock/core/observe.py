"""The seam to observe: one small event per transition of a lease, a worker, a run and an operation.

Counters, logging and the progress display subscribe to it, and so may anybody else:

>>> stop = everyone.subscribe(lambda event: print(type(event).__name__))
>>> everyone.emit(RunStopping())
RunStopping
>>> stop()
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from penstock.core.batch import Events
from penstock.core.lease import Failure, Settled

logger = logging.getLogger("penstock")


@dataclass(frozen=True, slots=True)
class Claimed:
    """A group (`stream/group`) has a new lease with so many events."""

    group: str
    lease: int
    events: int


@dataclass(frozen=True, slots=True)
class LeaseEnded:
    """A lease was settled, or given back whole."""

    group: str
    lease: int
    counts: Settled


@dataclass(frozen=True, slots=True)
class LeaseGone:
    """A lease was somebody else's by the time it was to be settled."""

    group: str
    message: str


@dataclass(frozen=True, slots=True)
class EventsFailed:
    """Events of a settled lease failed: by their place among its `events`."""

    group: str
    events: Events
    failures: Mapping[int, Failure]


@dataclass(frozen=True, slots=True)
class ProcessesDied:
    """Processes of handlers ended while they worked on a lease."""

    group: str
    count: int


@dataclass(frozen=True, slots=True)
class StoreAway:
    """Something failed because the database could not be reached; it is tried again."""

    where: str
    error: Exception


@dataclass(frozen=True, slots=True)
class RunBegan:
    """An engine begins to work for these groups."""

    engine: str
    groups: Sequence[str]
    run: int | None  # its row


@dataclass(frozen=True, slots=True)
class RunProgressed:
    """What a run has done so far: counts by group, over all its processes."""

    groups: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class RunStopping:
    """A run was told to stop: running handlers get their time."""


@dataclass(frozen=True, slots=True)
class RunEnded:
    """A run is over, for this reason."""

    outcome: str


@dataclass(frozen=True, slots=True)
class Operated:
    """An operator did something: it is in the audit, too."""

    action: str
    stream: str | None
    group: str | None
    count: int | None
    by: str


Observed = (
    Claimed
    | LeaseEnded
    | LeaseGone
    | EventsFailed
    | ProcessesDied
    | StoreAway
    | RunBegan
    | RunProgressed
    | RunStopping
    | RunEnded
    | Operated
)
Observer = Callable[[Observed], None]


class Observers:
    """Those who want to know. What is emitted here reaches the subscribers of its `parent`, too."""

    def __init__(self, *observers: Observer, parent: Observers | None = None) -> None:
        self._observers = observers
        self._parent = parent

    def subscribe(self, observer: Observer) -> Callable[[], None]:
        """Call it with every event from now on; returns what ends that."""
        self._observers = (*self._observers, observer)

        def unsubscribe() -> None:
            self._observers = tuple(one for one in self._observers if one is not observer)

        return unsubscribe

    def emit(self, event: Observed) -> None:
        """Tell everybody. One that fails is logged, and hurts nobody."""
        for observer in self._observers:
            try:
                observer(event)
            except Exception:
                logger.exception("an observer failed at %s", type(event).__name__)
        if self._parent is not None:
            self._parent.emit(event)


everyone = Observers()  # of this process

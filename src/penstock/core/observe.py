"""Observers: one small event per transition of a lease, a worker, a run and an operation.

Counters, logging and the progress display subscribe to them, and so may anyone else:

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
from penstock.core.ingested import Ingested
from penstock.core.lease import Failure, Settled

logger = logging.getLogger("penstock")


@dataclass(frozen=True, slots=True)
class Claimed:
    """A group (`stream/group`) has a new lease."""

    group: str
    lease: int
    events: int
    seconds: float | None = None  # that the claim took


@dataclass(frozen=True, slots=True)
class Timing:
    """When the claim of a lease began, in seconds since 1970 on this machine, and how long everything took."""

    began_at: float
    claim_seconds: float  # reading the events included
    handle_seconds: float | None = None
    settle_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class LeaseEnded:
    """A lease was settled, or released as a whole."""

    group: str
    lease: int
    counts: Settled
    events: Events | None = None  # that it had, where they were handled in this process or its children
    timing: Timing | None = None  # None if nothing was handled


@dataclass(frozen=True, slots=True)
class LeaseGone:
    """A lease was lost before it could be settled."""

    group: str
    message: str


@dataclass(frozen=True, slots=True)
class LeasesExpired:
    """Leases were taken back, because their holders did not settle in time; `counts` sums up what became of them."""

    group: str
    leases: int
    counts: Settled


@dataclass(frozen=True, slots=True)
class EventsFailed:
    """Events of a settled lease failed; `failures` is keyed by their index in `events`."""

    group: str
    events: Events
    failures: Mapping[int, Failure]
    lease: int | None = None


@dataclass(frozen=True, slots=True)
class ProcessesDied:
    """Handler processes died while they worked on a lease."""

    group: str
    count: int


@dataclass(frozen=True, slots=True)
class StoreAway:
    """The database could not be reached; the operation is retried."""

    where: str
    error: Exception


@dataclass(frozen=True, slots=True)
class CircuitOpened:
    """The target of a group is down: deliveries wait, and one event is tried now and then."""

    group: str
    code: str


@dataclass(frozen=True, slots=True)
class CircuitClosed:
    """The target of a group is back."""

    group: str


@dataclass(frozen=True, slots=True)
class EventsAppended:
    """Events were appended to a stream, in a transaction of Penstock's own."""

    stream: str
    events: int
    duplicates: int


@dataclass(frozen=True, slots=True)
class SchedulesRan:
    """Runs of schedules were due, and their jobs were submitted."""

    jobs: int


@dataclass(frozen=True, slots=True)
class JobsRemoved:
    """Retention removed finished jobs of a stream."""

    stream: str
    jobs: int


@dataclass(frozen=True, slots=True)
class RoundEnded:
    """A round of background work (see `engine.rounds`) was done, or failed with an error of this code."""

    name: str
    seconds: float
    code: str | None = None


@dataclass(frozen=True, slots=True)
class EntriesIngested:
    """A batch of entries of a source (`source > stream`) was committed; `gone` are entries deleted at the source."""

    name: str
    counts: Ingested
    gone: int


@dataclass(frozen=True, slots=True)
class BatchOvertaken:
    """A batch of entries was not stored, because another ingester went on or may have taken it over."""

    name: str


@dataclass(frozen=True, slots=True)
class SourceAway:
    """A source could not be reached; reading from it is retried."""

    name: str
    error: Exception


@dataclass(frozen=True, slots=True)
class RunBegan:
    """An engine started to work for these groups."""

    engine: str
    groups: Sequence[str]
    run: int | None  # the id of its row


@dataclass(frozen=True, slots=True)
class MetricsServed:
    """The counts of this process can be read at a URL."""

    url: str


@dataclass(frozen=True, slots=True)
class RunProgressed:
    """The progress of a run so far: counts by group, over all its processes."""

    groups: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class RunStopping:
    """A run is stopping; running handlers may finish within their time limit."""


@dataclass(frozen=True, slots=True)
class RunEnded:
    """A run ended, for this reason."""

    outcome: str


@dataclass(frozen=True, slots=True)
class Operated:
    """An operator's action; it is in the audit, too."""

    action: str
    stream: str | None
    group: str | None
    count: int | None
    by: str


Observed = (
    Claimed
    | LeaseEnded
    | LeaseGone
    | LeasesExpired
    | EventsFailed
    | ProcessesDied
    | StoreAway
    | CircuitOpened
    | CircuitClosed
    | EventsAppended
    | SchedulesRan
    | JobsRemoved
    | RoundEnded
    | EntriesIngested
    | BatchOvertaken
    | SourceAway
    | RunBegan
    | MetricsServed
    | RunProgressed
    | RunStopping
    | RunEnded
    | Operated
)
Observer = Callable[[Observed], None]


class Observers:
    """A set of observers. Events emitted here also reach the observers of `parent`."""

    def __init__(self, *observers: Observer, parent: Observers | None = None) -> None:
        self._observers = list(observers)
        self._parent = parent

    @property
    def listening(self) -> bool:
        """Whether anybody subscribed; what happens often need not be put into words for nobody."""
        return bool(self._observers)

    def subscribe(self, observer: Observer) -> Callable[[], None]:
        """Call `observer` with every event from now on; returns a function that unsubscribes it."""
        self._observers.append(observer)  # one step, so that threads may subscribe at the same time
        return lambda: self._observers.remove(observer)

    def emit(self, event: Observed) -> None:
        """Call every observer. One that fails is logged and does not affect the others."""
        for observer in tuple(self._observers):
            try:
                observer(event)
            except Exception:
                logger.exception("an observer failed on %s", type(event).__name__)
        if self._parent is not None:
            self._parent.emit(event)


everyone = Observers()  # of this process
pool = Observers()  # of a process with a pool: what its pool processes observed, where that was asked for

"""Groups with handlers and queues of jobs, as the driver sees them: who may have a slice now, and who sleeps."""

from __future__ import annotations

import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.core.lease import Idle
from penstock.declare.groups import declare, declare_job
from penstock.declare.job import JobType, PortableJob, portable_job
from penstock.declare.portable import PortableSubscription
from penstock.declare.subscription import Subscription
from penstock.engine.lookout import Waiter
from penstock.log.log import Log
from penstock.spark.handlers.time_slice import SliceReport, Work

_RETRY_SECONDS = (0.2, 10.0)  # after a lost slice: first and longest pause; it doubles
_UNWANTED_SECONDS = 1.0  # after a slice that was told to end, before the next one
_TURN_SECONDS = 1.0  # between two looks whether a group may have a slice, if nothing tells
_MORE_SECONDS = (0.5, 10.0)  # after a further slice that found nothing, before the next one; it doubles


@dataclass(slots=True, eq=False)
class Sliced(ABC):
    """Something that slices work for: its slices at work, and what the last ones said."""

    key: str = field(default_factory=lambda: uuid.uuid4().hex)  # under which Python workers cache what they opened
    reported: dict[str, Counter[str]] = field(default_factory=dict)  # by name: counts of the slices that have ended
    running: set[int] = field(default_factory=set)  # numbers of slices
    last: int = 0  # number of its last slice …
    began: float = 0.0  # … and when that began
    asleep: Idle | None = None  # the last claim of its last slice found nothing: no slice before it is woken
    not_before: float = 0.0  # no slice before this time, after a lost one …
    pause: float = 0.0
    more_at: float = 0.0  # … and no further one while one is at work
    more_pause: float = 0.0
    waiter: Waiter = field(default_factory=Waiter)

    @property
    @abstractmethod
    def name(self) -> str:
        """What it is called in logs."""

    @property
    @abstractmethod
    def work(self) -> Work:
        """What its slices are sent."""

    @property
    @abstractmethod
    def leases(self) -> dict[str, list[str]]:
        """The names that its leases have, by the names under which they are counted."""

    @abstractmethod
    def declare(self, log: Log, by: str) -> None:
        """Store what the app says of it."""

    @abstractmethod
    def look(self, log: Log) -> Idle | None:
        """Return why a claim would find nothing now; None if it may find something."""

    def may_have_more(self, free: int, others: bool) -> bool:
        """Whether it may have one of so many free slots beyond its first."""
        return True

    def may_begin(self, now: float, room: bool) -> bool:
        """Whether it may have a slice; a second one only if there is room, and the last of them found work."""
        if self.asleep is not None or now < self.not_before:
            return False
        return not self.running or (room and now >= self.more_at)

    def begin(self, number: int) -> bool:
        """Note a slice that begins; returns whether it is the only one."""
        self.began = time.monotonic()
        self.last = number
        self.running.add(number)
        return len(self.running) == 1

    def end(self, number: int, report: SliceReport | None) -> None:
        """Note how a slice ended (None: it was lost), and decide when the next one may begin."""
        now = time.monotonic()
        self.running.discard(number)
        if report is None:
            self.pause = _longer(self.pause, _RETRY_SECONDS)
            self.not_before = now + self.pause
            return
        for name, counts in report.counts.items():
            self.reported.setdefault(name, Counter()).update(counts)
        self.pause = 0.0
        if report.unwanted:  # the driver will hear of it, too
            self.not_before = now + _UNWANTED_SECONDS
        if report.idle is None:
            self.more_at = self.more_pause = 0.0
        elif self.running:
            self.more_pause = _longer(self.more_pause, _MORE_SECONDS)
            self.more_at = now + self.more_pause
        else:
            self.asleep = report.idle


@dataclass(slots=True, eq=False)
class SlicedGroup(Sliced):
    """A group with handlers."""

    subscription: Subscription = field(kw_only=True)
    portable: PortableSubscription = field(kw_only=True)

    @property
    def name(self) -> str:
        return self.subscription.name

    @property
    def work(self) -> Work:
        return self.portable

    @property
    def leases(self) -> dict[str, list[str]]:
        return {self.name: [self.name]}

    def declare(self, log: Log, by: str) -> None:
        declare(log, self.subscription, by)

    def look(self, log: Log) -> Idle | None:
        """So that appends to other streams start no slices."""
        return log.idle(self.subscription.stream, self.subscription.group)


@dataclass(slots=True, eq=False)
class SlicedQueue(Sliced):
    """A queue of jobs: its types share slices."""

    queue: str = field(kw_only=True)
    jobs: Sequence[JobType] = field(kw_only=True)
    portable: tuple[PortableJob, ...] = field(kw_only=True)

    @property
    def name(self) -> str:
        return f"jobs:{self.queue}"

    @property
    def work(self) -> Work:
        return self.portable

    @property
    def leases(self) -> dict[str, list[str]]:
        return {one.name: [part.name for part in one.served] for one in self.jobs}

    def declare(self, log: Log, by: str) -> None:
        for one in self.jobs:
            declare_job(log, one, by)

    def look(self, log: Log) -> Idle | None:
        return log.job_claims.idle([one.type for one in self.jobs], self.queue)

    def may_have_more(self, free: int, others: bool) -> bool:
        """Jobs have no time limit: leave a slot to the others."""
        return free > 1 or not others


def sliced_queues(jobs: Sequence[JobType]) -> list[SlicedQueue]:
    """Return the queues of these jobs; `HandlerUnreachable` if another process could not find their functions."""
    queues: dict[str, list[JobType]] = {}
    for one in jobs:
        queues.setdefault(one.queue, []).append(one)
    return [
        SlicedQueue(queue=queue, jobs=types, portable=tuple(portable_job(one) for one in types))
        for queue, types in queues.items()
    ]


def most_urgent(groups: Sequence[Sliced], room: bool, free: int, others: bool) -> Sliced | None:
    """Return who should have the next slice: the one with the fewest, then the one that waited longest.

    `room` says whether there may be second slices at all; `others`, whether somebody else uses the slots.
    """
    now = time.monotonic()
    others = others or len(groups) > 1
    ready = [one for one in groups if one.may_begin(now, room and one.may_have_more(free, others))]
    return min(ready, key=lambda one: (len(one.running), one.began), default=None)


def next_turn(groups: Sequence[Sliced]) -> float:
    """Return the seconds until a pause of some group ends."""
    now = time.monotonic()
    pauses = [at - now for one in groups for at in (one.not_before, one.more_at) if at > now]
    return min([*pauses, _TURN_SECONDS])


def wait_asleep(group: Sliced, changed: threading.Condition, stopping: threading.Event) -> Idle | None:
    """Return when the group falls asleep, with what its last claim said; None when stopping."""
    with changed:
        while group.asleep is None and not stopping.is_set():
            changed.wait()
        return None if stopping.is_set() else group.asleep


def _longer(pause: float, bounds: tuple[float, float]) -> float:
    first, most = bounds
    return min(max(first, 2 * pause), most)

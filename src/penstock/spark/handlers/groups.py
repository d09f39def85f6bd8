"""The groups with handlers, as the driver sees them: who may have a slice now, and who sleeps."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.core.lease import Idle
from penstock.declare.portable import PortableSubscription
from penstock.declare.subscription import Subscription
from penstock.engine.lookout import Waiter
from penstock.spark.handlers.time_slice import SliceReport

_RETRY_SECONDS = (0.2, 10.0)  # after a lost slice: first and longest pause; it doubles
_UNWANTED_SECONDS = 1.0  # after a slice that was told to end, before the next one
_TURN_SECONDS = 1.0  # between two looks whether a group may have a slice, if nothing tells
_MORE_SECONDS = (0.5, 10.0)  # after a further slice that found nothing, before the next one; it doubles


@dataclass(slots=True, eq=False)
class SlicedGroup:
    """One group: its slices at work, and what the last ones said."""

    subscription: Subscription
    portable: PortableSubscription
    key: str  # under which Python workers cache what they opened for it
    reported: Counter[str] = field(default_factory=Counter)  # counts of the slices that have ended
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
    def name(self) -> str:
        return self.subscription.name

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
        self.reported.update(report.counts)
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


def most_urgent(groups: Sequence[SlicedGroup], room: bool) -> SlicedGroup | None:
    """Return the group that should have the next slice: the one with the fewest, then the one that waited longest."""
    now = time.monotonic()
    ready = [one for one in groups if one.may_begin(now, room)]
    return min(ready, key=lambda one: (len(one.running), one.began), default=None)


def next_turn(groups: Sequence[SlicedGroup]) -> float:
    """Return the seconds until a pause of some group ends."""
    now = time.monotonic()
    pauses = [at - now for one in groups for at in (one.not_before, one.more_at) if at > now]
    return min([*pauses, _TURN_SECONDS])


def wait_asleep(group: SlicedGroup, changed: threading.Condition, stopping: threading.Event) -> Idle | None:
    """Return when the group falls asleep, with what its last claim said; None when stopping."""
    with changed:
        while group.asleep is None and not stopping.is_set():
            changed.wait()
        return None if stopping.is_set() else group.asleep


def _longer(pause: float, bounds: tuple[float, float]) -> float:
    first, most = bounds
    return min(max(first, 2 * pause), most)

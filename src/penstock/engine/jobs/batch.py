"""A lease whose jobs are being done: what has ended, and how to settle it."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.core.lease import DEATHS, Effects, Failure, Settled, Settlement
from penstock.engine.handlers.context import Recorded
from penstock.log.lease import Lease

_ENDED, _UNKNOWN = 1, 0


@dataclass(slots=True)
class Batch:
    """The jobs of one lease, by their places in it."""

    lease: Lease
    claim_seconds: float = 0.0
    failed: dict[int, Failure] = field(default_factory=dict)
    dead: dict[int, Failure] = field(default_factory=dict)
    suspects: dict[int, Failure] = field(default_factory=dict)
    back: set[int] = field(default_factory=set)  # ended, but to be done again: their target was unavailable
    unavailable: Failure | None = None
    results: dict[int, str] = field(default_factory=dict)
    effects: dict[int, Recorded] = field(default_factory=dict)
    waits_since: float | None = None  # when the first of the jobs ended that are not settled yet
    recalled: bool = False  # what has not begun was asked back
    lost: bool = False
    began_at: float = field(default_factory=time.time)
    left: int = field(init=False)
    _marks: bytearray = field(init=False)

    def __post_init__(self) -> None:
        self.left = len(self.lease.events)
        self._marks = bytearray(self.left)

    def end(self, place: int) -> None:
        """Note that a job has ended."""
        if not self._marks[place]:
            self._marks[place] = _ENDED
            self.left -= 1
            if self.waits_since is None:
                self.waits_since = time.monotonic()

    def end_all(self, places: Sequence[int]) -> None:
        """Note that jobs have ended which have nothing more to say."""
        if isinstance(places, range) and not any(marks := self._marks[places.start : places.stop]):
            self._marks[places.start : places.stop] = bytes([_ENDED]) * len(marks)
            self.left -= len(marks)
            self.waits_since = self.waits_since or time.monotonic()
        else:
            for place in places:
                self.end(place)

    def has_ended(self, place: int) -> bool:
        """Whether a job has ended."""
        return bool(self._marks[place])

    def unended(self) -> list[int]:
        """Return the places of jobs that have not ended."""
        return [place for place, mark in enumerate(self._marks) if mark == _UNKNOWN]

    def settle(self, running: Collection[int] = ()) -> Settled:
        """Settle what has ended; what runs is kept, and the rest given back."""
        offsets = self.lease.events.offsets
        kept = {place for place in running if not self._marks[place]}
        idle = [place for place in self.unended() if place not in kept]
        if not (self.failed or self.dead or self.suspects or self.back or self.results or self.effects or kept or idle):
            return self.lease.settle()
        rows = {offsets[place] for place in (*self.failed, *self.dead, *self.suspects)}
        upto, back = self.lease.split({offsets[place] for place in (*self.back, *idle)}, rows)
        return self.lease.apply(
            Settlement(
                failed={offsets[place]: why for place, why in self.failed.items()},
                dead={offsets[place]: why for place, why in self.dead.items()},
                suspects={offsets[place]: why for place, why in self.suspects.items()},
                released=frozenset(back),
                keep=frozenset(offsets[place] for place in kept),
                upto=upto,
                unavailable=self.unavailable,
                results={offsets[place]: text for place, text in self.results.items()},
                event_effects={
                    offsets[place]: Effects({}, [event for event, _ in one.emit], one.execute)
                    for place, one in self.effects.items()
                },
            )
        )


def is_suspect(lease: Lease) -> bool:
    """Whether a job of it may have killed its process."""
    retries: Any = lease.events.retries
    return retries is not None and any((error or "").split(":", 1)[0] in DEATHS for _, _, error, _, _ in retries)

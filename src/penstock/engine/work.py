"""A lease in progress: its events, their results so far, and their effects."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.core import fingerprint
from penstock.core.batch import Events
from penstock.core.event import NewEvent
from penstock.core.job import CANCELLED
from penstock.core.lease import Failure
from penstock.engine.handlers.context import Recorded
from penstock.engine.handlers.runner import Report
from penstock.engine.handlers.state import LeaseState, Written
from penstock.engine.isolation.marks import Mark, Marks

_UNFINISHED = re.compile(b"[^%c%c%c]" % (Mark.DONE, Mark.FAILED, Mark.CANCELLED), re.DOTALL)
_UNCALLED = bytes([Mark.UNTOUCHED, Mark.CANCELLED])


@dataclass(slots=True)
class Work:
    """The results of a lease. All places count from its first event."""

    events: Events
    token: int
    marks: Marks
    state: LeaseState = field(default_factory=LeaseState)
    failed: dict[int, Failure] = field(default_factory=dict)
    dead: dict[int, Failure] = field(default_factory=dict)
    unavailable: Failure | None = None
    effects: dict[int, Recorded] = field(default_factory=dict)
    written: dict[str, Written] = field(default_factory=dict)
    writers: dict[str, list[int]] = field(default_factory=dict)  # places of the events whose writes `written` holds
    emit: list[tuple[int, NewEvent]] = field(default_factory=list)
    suspects: dict[int, Failure] = field(default_factory=dict)  # called together; one of them is to blame
    skipped: dict[int, str] = field(default_factory=dict)  # done, with the reason
    cancelled: dict[int, str] = field(default_factory=dict)  # events that should end, each with its error
    deaths: int = 0  # handler processes that stopped unexpectedly
    began: float | None = None  # when its first event went to a process that had loaded
    marked: bytes | None = None  # the final marks

    def __post_init__(self) -> None:
        self.marks.begin(len(self.events))

    def add(self, report: Report) -> None:
        """Add the results of a part."""
        self.failed |= report.failed
        self.dead |= report.dead
        self.suspects |= report.suspects
        self.skipped |= report.skipped
        self.unavailable = report.unavailable or self.unavailable
        self.effects |= report.effects
        for key, written in report.state.items():
            self.written.setdefault(key, {}).update(written)
            self.writers.setdefault(key, []).extend(report.writers[key])
        self.emit += report.emit

    def blame(self, place: int, failure: Failure) -> None:
        """Fail an event that killed its process."""
        self.failed[place] = failure
        self.marks.events[place] = Mark.FAILED

    def suspect(self, places: Iterable[int], failure: Failure) -> None:
        """Note that one of these events killed its process, and it is not known which."""
        for place in places:
            self.suspects[place] = failure
            self.marks.events[place] = Mark.FAILED

    def cancel(self, errors: Mapping[int, str]) -> None:
        """Note that events, named by offset, should end: one that has not begun is not called. From any thread."""
        offsets, running = self.events.offsets, set(self.marks.running())
        for offset, error in errors.items():
            place = bisect_left(offsets, offset)
            if place == len(offsets) or offsets[place] != offset:
                continue  # of another lane
            self.cancelled[place] = error
            self.marks.cancels[place] = 1
            if place not in running and self.marks.events[place] == Mark.UNTOUCHED:
                self.marks.events[place] = Mark.CANCELLED

    def finish(self) -> None:
        """Give up what was cancelled and did not succeed; copy the marks, so that the next lease can use them."""
        for place, error in [*self.cancelled.items()]:
            if self.marks.events[place] == Mark.DONE:
                continue
            why = self.dead.get(place) or self.failed.pop(place, None) or self.suspects.pop(place, None)
            more = "" if why is None or why.code == CANCELLED else f"; {why.message}"
            self.dead[place] = fingerprint.of_text(CANCELLED, error + more)
            if self.marks.events[place] != Mark.FAILED:
                self.marks.events[place] = Mark.CANCELLED
        self.marked = self.outcomes()

    def outcomes(self) -> bytes:
        """Return one mark per event, as of now."""
        return bytes(self.marks.events[: len(self.events)]) if self.marked is None else self.marked

    def touched(self) -> int:
        """Return the place after the last event that was touched."""
        return len(self.outcomes().rstrip(_UNCALLED))

    def unfinished(self) -> list[int]:
        """Return places before `touched` that are released: skipped, held, or stopped by an unavailable target."""
        return [found.start() for found in _UNFINISHED.finditer(self.outcomes(), 0, self.touched())]

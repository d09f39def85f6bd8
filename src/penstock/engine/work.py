"""A lease in work: its events, what became of them so far, and what they ask for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from penstock.core.batch import Events
from penstock.core.event import NewEvent
from penstock.core.lease import Failure
from penstock.engine.handlers.context import Recorded
from penstock.engine.handlers.runner import Report
from penstock.engine.handlers.state import LeaseState, Written
from penstock.engine.isolation.marks import Mark, Marks

_UNFINISHED = re.compile(b"[^%c%c]" % (Mark.DONE, Mark.FAILED), re.DOTALL)


@dataclass(slots=True)
class Work:
    """All places are counted from the first event of the lease."""

    events: Events
    token: int
    marks: Marks
    state: LeaseState = field(default_factory=LeaseState)
    failed: dict[int, Failure] = field(default_factory=dict)
    dead: dict[int, Failure] = field(default_factory=dict)
    unavailable: Failure | None = None
    effects: dict[int, Recorded] = field(default_factory=dict)
    written: dict[str, Written] = field(default_factory=dict)
    writers: dict[str, list[int]] = field(default_factory=dict)  # whose writes `written` holds
    emit: list[tuple[int, NewEvent]] = field(default_factory=list)
    suspects: dict[int, Failure] = field(default_factory=dict)  # called together, and one of them is to blame
    deaths: int = 0  # processes that ended under its hands
    began: float | None = None  # when its first event was handed to a process that was ready
    marked: bytes | None = None  # the marks as they were in the end

    def __post_init__(self) -> None:
        self.marks.begin(len(self.events))

    def add(self, report: Report) -> None:
        """Some more of it was run."""
        self.failed |= report.failed
        self.dead |= report.dead
        self.suspects |= report.suspects
        self.unavailable = report.unavailable or self.unavailable
        self.effects |= report.effects
        for key, written in report.state.items():
            self.written.setdefault(key, {}).update(written)
            self.writers.setdefault(key, []).extend(report.writers[key])
        self.emit += report.emit

    def blame(self, place: int, failure: Failure) -> None:
        """This event took its process down."""
        self.failed[place] = failure
        self.marks.events[place] = Mark.FAILED

    def suspect(self, places: Iterable[int], failure: Failure) -> None:
        """One of these took its process down, and nobody knows which."""
        for place in places:
            self.suspects[place] = failure
            self.marks.events[place] = Mark.FAILED

    def finish(self) -> None:
        """Nothing more is run: from here on the marks may serve another lease."""
        self.marked = self.outcomes()

    def outcomes(self) -> bytes:
        """One mark per event, as of now."""
        return bytes(self.marks.events[: len(self.events)]) if self.marked is None else self.marked

    def touched(self) -> int:
        """How far it came: behind this place nothing was begun."""
        return len(self.outcomes().rstrip(bytes([Mark.UNTOUCHED])))

    def unfinished(self) -> list[int]:
        """Places of events that go back before the untouched end: left out, held, or met by an unavailable target."""
        return [found.start() for found in _UNFINISHED.finditer(self.outcomes(), 0, self.touched())]

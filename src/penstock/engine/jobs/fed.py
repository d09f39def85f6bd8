"""A batch of jobs as their process sees it: which wait, which have ended, which should end."""

from __future__ import annotations

from collections.abc import Sequence
from operator import length_hint

from penstock.core.batch import Events


class Fed:
    """The jobs of a batch by their places in it, for several threads without a lock.

    `waiting` gives each place to one thread, and `ended` only grows: both are single steps of the interpreter.
    """

    __slots__ = ("_given_back", "_reported", "ended", "events", "number", "token", "unwanted", "waiting")

    def __init__(self, number: int, events: Events, token: int) -> None:
        self.number = number
        self.events = events
        self.token = token
        self.waiting = iter(range(len(events)))
        self.ended: list[int] = []  # in the order in which they ended
        self.unwanted: set[int] = set()  # should end, or should not begin
        self._reported = 0
        self._given_back = 0

    @property
    def waits(self) -> bool:
        """Whether a job has not begun."""
        return length_hint(self.waiting) > 0

    def news(self) -> Sequence[int]:
        """Return the places that ended since the last call; a range, which is small to send, if it can be one."""
        places = self.ended[self._reported :]
        self._reported += len(places)
        if not places:
            return ()
        first, last = min(places), max(places)
        return range(first, last + 1) if last - first == len(places) - 1 else places

    def give_back(self) -> None:
        """Begin none of the jobs that wait."""
        self._given_back += len([*self.waiting])  # in one step, so that these are the last

    def running(self) -> frozenset[int]:
        """Return the places that have begun and were not in `news`; call it after `give_back`."""
        begun = range(len(self.events) - self._given_back)
        return frozenset(begun) - frozenset(self.ended[: self._reported])

    @property
    def is_over(self) -> bool:
        """Whether every job was in `news`, or given back."""
        return self._reported + self._given_back == len(self.events)

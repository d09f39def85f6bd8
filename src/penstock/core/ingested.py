"""What is stored of a batch of entries besides its events, and what became of the entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from penstock.core.entry_ids import EntryId
from penstock.core.event import EventColumns, NewEvent


class Move(NamedTuple):
    """How far a batch brings one part of a source: from the position that is stored to the next one to read."""

    part: str
    expected: int
    position: int


class Made:
    """The events of a batch, in the order of its entries.

    `columns` has them all at once, if they are plain and their ids were made of their positions. Otherwise, or if some
    of them turn out to be known, they are made one by one: `make` returns the event of an entry by its place, None for
    one that the mapping drops, or raises. `reject` makes the event that says why.
    """

    def __init__(
        self,
        count: int,
        make: Callable[[int], NewEvent | None],
        reject: Callable[[int, BaseException], NewEvent],
        columns: EventColumns | None = None,
    ) -> None:
        self._count = count
        self._make = make
        self.reject = reject
        self.columns = columns
        self.rejected: set[int] = set()  # places of entries whose event is their rejection

    def __len__(self) -> int:
        return self._count

    @cached_property
    def events(self) -> Sequence[NewEvent | None]:
        """The events one by one; an entry that cannot become one is rejected, and no other with it."""
        return [self._event(place) for place in range(self._count)]

    def _event(self, place: int) -> NewEvent | None:
        try:
            return self._make(place)
        except BaseException as error:  # the mapping may raise anything
            self.rejected.add(place)
            return self.reject(place, error)


@dataclass(frozen=True, slots=True)
class EntryBatch:
    """Entries that are remembered by their ids; `ours` tells whether nobody else can have taken them over yet."""

    ids: Sequence[EntryId]
    ours: Callable[[], bool]
    acknowledged: Sequence[int] = ()  # remembered ranges whose entries the source need not send again


@dataclass(frozen=True, slots=True)
class FileBatch:
    """Files whose rows were staged, to be appended to a stream."""

    into: str
    names: Sequence[str]
    writer: str  # under which they were staged …
    staged: Sequence[Any]  # … by these attempts
    rejected: int  # how many of the events are rejections
    dropped: int  # rows that the mapping dropped


class Ingested(NamedTuple):
    """What became of the entries of a batch."""

    stored: int = 0
    known: int = 0  # stored before: delivered again, or with the id of an event that is the same
    rejected: int = 0
    dropped: int = 0  # the mapping returned None
    ranges: Sequence[int] = ()  # what was remembered, to be acknowledged

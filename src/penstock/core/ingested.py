"""What is stored of a batch of entries besides its events, and what became of the entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.core.entry_ids import EntryId
from penstock.core.event import NewEvent


class Move(NamedTuple):
    """How far a batch brings one part of a source: from the position that is stored to the next one to read."""

    part: str
    expected: int
    position: int


@dataclass(frozen=True, slots=True)
class Made:
    """The events of a batch, in the order of its entries; None for an entry that the mapping dropped.

    `reject` makes the event for an entry, by its place, whose event turns out to be refused by the log.
    """

    events: Sequence[NewEvent | None]
    rejected: frozenset[int]  # places of entries whose event is their rejection
    reject: Callable[[int, Exception], NewEvent]


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

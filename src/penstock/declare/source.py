"""The source contract: what an ingester reads from, and what it gets.

A source is an object with `open(ingests)`, which connects and returns a reader. A reader's batch has a mark, which says
what is stored with its events: positions that are compared and set (`Move`s), the ids of entries (`EntryBatch`), or the
names of files whose rows are staged (`FileBatch`). The ingester stores both in one transaction, and then tells the
reader to acknowledge the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, overload, runtime_checkable

from penstock.core.entry import Entry
from penstock.core.event import EventColumns
from penstock.core.ingested import EntryBatch, FileBatch, Ingested, Move
from penstock.log.ingest import Ingests


class RawEntries(Sequence[Entry]):
    """Entries as a client returned them. Most of them become events all at once, and none of them an `Entry`."""

    def __init__(
        self,
        raw: Sequence[Any],
        make: Callable[[Any], Entry],
        columns: Callable[[str, Sequence[Any]], EventColumns | None],
    ) -> None:
        self.raw = raw
        self._make = make
        self._columns = columns

    def columns(self, into: str) -> EventColumns | None:
        """Return the events of a stream that these are; None unless they are plain."""
        return self._columns(into, self.raw)

    def __len__(self) -> int:
        return len(self.raw)

    @overload
    def __getitem__(self, place: int) -> Entry: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Entry]: ...
    def __getitem__(self, place: int | slice) -> Entry | Sequence[Entry]:
        return self._made[place]

    @cached_property
    def _made(self) -> list[Entry]:
        return [self._make(one) for one in self.raw]


@dataclass(frozen=True, slots=True)
class SourceBatch:
    """What a reader has read at once."""

    entries: Sequence[Entry]
    mark: Sequence[Move] | EntryBatch | FileBatch
    gone: int = 0  # entries that were pending, but deleted at the source


class Reader(Protocol):
    """An open source, used by one thread. Whatever its server does to it is a `SourceUnavailable`."""

    source: str  # its name in the log: the same in every process, and of no other source

    def read(self, seconds: float) -> SourceBatch | None:
        """Return the next batch; None if there is nothing for about so long. A `PositionLost` ends this source."""

    def acknowledge(self, batch: SourceBatch, ingested: Ingested) -> None:
        """The batch is committed: tell the source."""

    def overtaken(self, batch: SourceBatch) -> None:
        """The batch was not stored, because another ingester went on: begin again where the log is."""

    def rest(self, idle: bool) -> None:
        """Do what is to be done now and then. Called after every batch, and when there is nothing to read (`idle`)."""

    def drained(self) -> bool:
        """Return whether the source has nothing more at this moment."""

    def close(self) -> None:
        """Disconnect."""


@runtime_checkable
class Source(Protocol):
    """A stream of another system. It holds no connection, and its `repr` no password."""

    @property
    def name(self) -> str:
        """What it is called in logs."""

    def open(self, ingests: Ingests) -> Reader:
        """Connect; `SourceUnavailable` if that fails."""

    def fields_of(self, entry: Entry) -> Mapping[str, Any] | None:
        """Return the fields of the entry's event as for `append_many`; None drops it."""

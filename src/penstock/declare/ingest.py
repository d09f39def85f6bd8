"""`Ingest`: a source, the stream that its entries go into, and how they become events."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.core.entry import REJECTED, Entry, event_id_of, rejected_event
from penstock.core.event import NewEvent, check_name
from penstock.core.ingested import Made
from penstock.core.job import check_not_jobs
from penstock.declare.source import RawEntries, Source
from penstock.errors import InvalidSource
from penstock.log import new_events

Map = Callable[[Entry], Mapping[str, Any] | None]


@dataclass(frozen=True, slots=True)
class Ingest:
    """Entries of `source` become events of the stream `into`; what cannot goes to `<into>.rejected`."""

    source: Source
    into: str
    map: Map | None = None

    def __post_init__(self) -> None:
        if not callable(getattr(self.source, "open", None)) or not callable(getattr(self.source, "fields_of", None)):
            raise InvalidSource(f"{type(self.source).__name__} is not a source: it has no open() and fields_of().")
        check_not_jobs(check_name(self.into, "into"))
        check_name(self.into + REJECTED, "into")
        if self.map is not None and (not callable(self.map) or inspect.iscoroutinefunction(self.map)):
            raise InvalidSource(f"map is a plain function of an entry, not {self.map!r:.80}.")

    @property
    def name(self) -> str:
        """What it is called in logs and counts."""
        return f"{self.source.name} > {self.into}"

    def made_of(self, source: str, entries: Sequence[Entry]) -> Made:
        """Return the events of entries; an entry that cannot become one is rejected, and no other with it."""
        columns = None
        if self.map is None and isinstance(entries, RawEntries):
            columns = entries.columns(self.into)
        made = Made(
            len(entries),
            lambda place: self._event(source, entries[place]),
            lambda place, error: rejected_event(self.into, source, entries[place], error),
            columns,
        )
        if columns is None:
            made.events  # noqa: B018  # made now: somebody's mapping may take long, and is called once
        return made

    def _event(self, source: str, entry: Entry) -> NewEvent | None:
        if entry.error is not None:
            raise entry.error
        fields = self.source.fields_of(entry) if self.map is None else self.map(entry)
        if fields is None:
            return None
        new_events.check_fields(fields)
        if fields.get("event_id") is None:
            fields = {**fields, "event_id": event_id_of(source, entry)}
        return new_events.one(self.into, fields)[0]

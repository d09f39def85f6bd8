"""Which deliveries an operator's action applies to, and how many it moved."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict

from penstock.core.event import check_text, check_time, parse_event_id
from penstock.errors import FilterNeeded, InvalidInput

NO_FINGERPRINT = "none"  # names the dead letters without a fingerprint


@dataclass(frozen=True, slots=True)
class Selection:
    """Deliveries that match every given filter."""

    event_ids: Sequence[uuid.UUID] | None = None
    error: str | None = None
    event_type: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    fingerprint: str | None = None

    def params(self, cutoff: datetime | None = None) -> dict[str, object]:
        """Return the parameters of the SQL blocks that find them; dead letters only if they died by `cutoff`."""
        return {
            "event_ids": None if self.event_ids is None else list(self.event_ids),
            "error": self.error,
            "event_type": self.event_type,
            "since": self.since,
            "until": self.until,
            "fingerprint": self.fingerprint,
            "cutoff": cutoff,
        }

    def detail(self) -> dict[str, object]:
        """Return the given filters, for the audit."""
        given = {name: value for name, value in self.params().items() if value is not None}
        if self.event_ids is not None:
            given["event_ids"] = [str(one) for one in self.event_ids]
        for name in ("since", "until"):
            if name in given:
                given[name] = getattr(self, name).isoformat()
        return given

    @classmethod
    def of_detail(cls, given: Mapping[str, Any]) -> Selection:
        """Make the selection whose `detail` this is."""
        ids = given.get("event_ids")
        since, until = (datetime.fromisoformat(given[one]) if one in given else None for one in ("since", "until"))
        named = {one: given.get(one) for one in ("error", "event_type", "fingerprint")}
        return cls(None if ids is None else [uuid.UUID(one) for one in ids], since=since, until=until, **named)

    def or_all(self, all: bool) -> Selection:
        """Return itself; raise `FilterNeeded` if it has no filter and `all` is false."""
        if self == Selection() and not all:
            raise FilterNeeded
        return self


class Filters(TypedDict, total=False):
    """How a caller names dead letters; see `select`."""

    event_ids: Iterable[Any] | None
    error: str | None
    type: str | None
    since: datetime | None
    until: datetime | None
    fingerprint: str | None


def select(
    *,
    event_ids: Iterable[Any] | None = None,
    error: str | None = None,
    type: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    fingerprint: str | None = None,
) -> Selection:
    """Check a caller's filters."""
    return Selection(
        None if event_ids is None else ids_of(event_ids),
        check_text(error, "error"),
        check_text(type, "type"),
        check_time(since, "since"),
        check_time(until, "until"),
        check_text(fingerprint, "fingerprint"),
    )


def ids_of(event_ids: Iterable[Any]) -> list[uuid.UUID]:
    """Return a list of event ids without duplicates."""
    if isinstance(event_ids, str):
        raise InvalidInput("event_ids must be a list of ids.")
    return list(dict.fromkeys(parse_event_id(one) for one in event_ids))


@dataclass(frozen=True, slots=True)
class Moved:
    """How many deliveries an operator's action moved (or, on a dry run, would move)."""

    count: int
    dry_run: bool = False

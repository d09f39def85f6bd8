"""An event id means one event: the comparison every store makes before it answers "duplicate"."""

from __future__ import annotations

import uuid

from penstock.core.event import NewEvent
from penstock.errors import DuplicateMismatch


def check_same(event_id: uuid.UUID | str, known: tuple[str, str, bytes], event: NewEvent) -> None:
    """The same id must mean the same event; `known` is its stream, type and payload."""
    if known != (event.stream, event.event_type, event.payload):
        raise DuplicateMismatch(
            f"Event id {event_id} is already taken by another event on {known[0]!r}.", event_id=event.event_id
        )

"""An event id means one event: the comparison every store makes before it answers "duplicate"."""

from __future__ import annotations

import uuid

from penstock.core.event import NewEvent
from penstock.errors import DuplicateMismatch


def check_same(event_id: uuid.UUID | str, same: bool, event: NewEvent) -> None:
    """The same id must mean the same event: stream, type and payload. Of another one nothing is told."""
    if not same:
        raise DuplicateMismatch(f"Event id {event_id} is already taken by another event.", event_id=event.event_id)

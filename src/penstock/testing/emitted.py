"""An emitted event in a form that tests can compare."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import orjson

from penstock.core import codec
from penstock.core.batch import Event
from penstock.core.event import NewEvent


@dataclass(frozen=True, slots=True)
class Emitted:
    """An emitted event with its payload decoded; comparison ignores the id.

    >>> Emitted("alerts", {"order": 7}, type="alert.raised", event_id=uuid.uuid4()) == Emitted(
    ...     "alerts", {"order": 7}, type="alert.raised"
    ... )
    True
    """

    stream: str
    payload: Any  # bytes if the content type is not JSON
    type: str
    ordering_key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    partition_key: str | None = None
    available_at: datetime | None = None
    content_type: str = codec.JSON
    event_id: uuid.UUID | None = field(default=None, compare=False)


def of_new(new: NewEvent) -> Emitted:
    """Convert an event that is not settled yet."""
    return Emitted(
        new.stream,
        _decoded(new.payload, new.content_type),
        new.event_type,
        new.ordering_key,
        orjson.loads(new.headers) if new.headers else {},
        orjson.loads(new.metadata) if new.metadata else {},
        new.partition_key,
        new.available_at,
        new.content_type,
        new.event_id,
    )


def of_stored(event: Event) -> Emitted:
    """Convert an event of the log."""
    return Emitted(
        event.stream,
        _decoded(event.payload, event.content_type),
        event.event_type,
        event.ordering_key,
        event.headers,
        event.metadata,
        event.partition_key,
        event.available_at,
        event.content_type,
        event.event_id,
    )


def _decoded(payload: bytes, content_type: str) -> Any:
    """Decode JSON; return the bytes if they are not JSON, whatever their content type claims."""
    if content_type != codec.JSON and not content_type.endswith("+json"):
        return bytes(payload)
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError:
        return bytes(payload)

"""`Received`: a message as a consumer at the target sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Received:
    """A message that has arrived. `raw` is everything the target has of it, if there is more than the other fields.

    A field that the target has no place for is None.
    """

    id: str
    payload: bytes
    headers: Sequence[tuple[str, str | bytes]] = ()  # the event's own, in any order
    key: str | None = None
    type: str | None = None
    content_type: str | None = None
    raw: bytes = b""

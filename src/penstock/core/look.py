"""The position of a log, and the means to watch it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Look:
    """The position of the log. An idle worker claims again when any field has changed."""

    horizon: int  # nothing can still appear below it; the last assigned offset may be higher
    actions: int  # the newest operator action
    returned: int  # the newest returned range


class Sight(Protocol):
    """How a look-out watches a log. Used by one thread."""

    @property
    def listens(self) -> bool:
        """Whether it receives notifications."""

    def look(self) -> Look:
        """Return the current position of the log. Cheap."""

    def expect(self, waiting: bool) -> None:
        """Tell appenders whether anyone waits for a notification."""

    def wait(self, seconds: float | None, kick: int) -> bool:
        """Wait until a notification arrives (returns True), `kick` is readable, or the time is up."""

    def close(self) -> None:
        """Stop watching."""

"""Where a log stands, and what a look-out watches it with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Look:
    """Where the log stands. An idle worker claims again when any of it has changed."""

    horizon: int  # below it nothing can still appear; the last offset given out may be higher
    actions: int  # the newest action of an operator
    returned: int  # the newest range that came back


class Sight(Protocol):
    """What one look-out watches a log with. Used by one thread."""

    @property
    def listens(self) -> bool:
        """Whether notifications arrive here."""

    def look(self) -> Look:
        """Where the log stands now. Cheap."""

    def expect(self, waiting: bool) -> None:
        """Tell appenders whether somebody waits for a notification."""

    def wait(self, seconds: float | None, kick: int) -> bool:
        """Return when a notification has arrived (True), `kick` is readable, or the time is up."""

    def close(self) -> None:
        """Stop watching."""

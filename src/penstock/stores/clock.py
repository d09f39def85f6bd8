"""The seam for tests: a store asks this clock for the time instead of its database."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Anything that knows the time."""

    def now(self) -> datetime:
        """An aware datetime in UTC."""

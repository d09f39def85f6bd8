"""The second argument of a batch handler."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.core.batch import Event, Events
from penstock.engine.handlers.context import Context
from penstock.errors import InvalidInput


class BatchContext:
    """The second argument of a batch handler: a `Context` for each of its events."""

    __slots__ = ("_events", "_indexes", "_make", "made", "token")

    def __init__(self, events: Events, indexes: Sequence[int], token: int, make: Callable[[Event], Context]) -> None:
        self._events = events
        self._indexes = frozenset(indexes)
        self._make = make
        self.token = token  # grows with every claim: use it to fence writes to other systems
        self.made: dict[int, Context] = {}  # by index, on demand

    def of(self, event: Event) -> Context:
        """Return the context of one event of this call; its effects commit if, and only if, this event succeeds."""
        if not isinstance(event, Event) or event._of is not self._events or event._index not in self._indexes:
            raise InvalidInput("ctx.of(event) takes an event of this call.")
        index = event._index
        if index not in self.made:
            self.made[index] = self._make(event)
        return self.made[index]

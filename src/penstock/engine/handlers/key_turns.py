"""Which event may start next when several are handled at once: events of one key take turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence


class Turns:
    """A queue of places; with `keys`, an event waits for the earlier ones of its key."""

    def __init__(self, places: Iterable[int], keys: Sequence[str | None] | None) -> None:
        self._places = iter(places)
        self._keys = keys
        self._busy: dict[str, deque[int]] = {}
        self._freed: deque[int] = deque()

    def take(self) -> int | None:
        """Return the next event that may start; None if there is none until a running one is done."""
        if self._freed:
            return self._freed.popleft()
        for place in self._places:
            key = None if self._keys is None else self._keys[place]
            if key is None:
                return place
            if key not in self._busy:
                self._busy[key] = deque()
                return place
            self._busy[key].append(place)
        return None

    def done(self, place: int) -> None:
        """Let the next event of this one's key start."""
        key = None if self._keys is None else self._keys[place]
        if key is None:
            return
        waiting = self._busy[key]
        if waiting:
            self._freed.append(waiting.popleft())
        else:
            del self._busy[key]

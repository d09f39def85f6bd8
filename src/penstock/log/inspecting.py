"""Looking at the log; nothing changes by it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from penstock.core.event import check_key
from penstock.core.events import Event, Events
from penstock.errors import InvalidInput, UnknownEvent
from penstock.log import checking
from penstock.log.transacting import Transacting
from penstock.stores import drain, groups, inspect, keyed_state, stats
from penstock.stores.base import Transaction
from penstock.stores.inspect import DeliveryRecord
from penstock.stores.stats import Stats


class Inspecting(Transacting):
    """Events, deliveries, state and counts."""

    def streams(self) -> list[str]:
        """The names of all streams; a stream exists by being appended to."""
        return [name for name, _ in self._run(inspect.streams, write=False)]

    def position(self, stream: str, where: str | int | datetime) -> int:
        """The offset behind which a position lies: "beginning", "end", an offset, or a time of creation."""
        known = checking.position(where, "where")
        return self._run(lambda tx: groups.position(tx, stream, known), write=False)

    def event(self, stream: str, event_id: Any) -> Event:
        """One event, by its id or its offset."""
        known, offset = checking.event_of(event_id)
        row = self._run(lambda tx: tx.one("inspect.event", stream=stream, event_id=known, offset=offset), write=False)
        if row is None:
            raise UnknownEvent(f"There is no event {event_id} on {stream!r}.")
        return Events(self.store.read_events(stream, row.offset - 1, row.offset, 1), stream, None)[0]

    def deliveries(
        self,
        stream: str,
        group: str,
        *,
        state: str | None = None,
        type: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        error: str | None = None,
        event_ids: Iterable[Any] | None = None,
        after: int = 0,
        limit: int = 1000,
    ) -> list[DeliveryRecord]:
        """Deliveries in offset order; pass the last one's offset as `after` for the next page."""
        which = checking.filter_of(event_ids, error, type, since, until)
        wanted = None if state is None else checking.state_of(state)
        checking.count(after, "after")
        checking.count(limit, "limit")
        return self._run(
            lambda tx: inspect.deliveries(tx, stream, group, which, state=wanted, after=after, limit=limit),
            write=False,
        )

    def delivery(self, stream: str, group: str, event_id: Any) -> DeliveryRecord:
        """One delivery, with its attempt history; the event by its id or its offset."""
        known, offset = checking.event_of(event_id)
        found = self._run(lambda tx: inspect.delivery(tx, stream, group, known, offset), write=False)
        if found is None:
            raise UnknownEvent(f"{event_id} is no delivery of {group!r} on {stream!r}.")
        return found

    def stats(self, stream: str | None = None, group: str | None = None) -> Stats:
        """Counts per state, lag and age of every group, of a stream's or of one, in time that does not grow with the
        log."""
        return self._run(lambda tx: stats.stats(tx, stream, group), write=False)

    def end(self) -> int:
        """The last offset that was given out, visible or not: what idle workers look at."""
        return self._run(drain.end, write=False)

    def drained(self, stream: str, group: str) -> bool:
        """Whether nothing is left to do up to the horizon: nothing due, in work or waiting for a retry.

        Events dated in the future and keys that halted at a dead letter do not count.
        """
        return self._run(lambda tx: drain.drained(tx, stream, group), write=False)

    def state(self, stream: str, group: str, key: str) -> dict[str, Any]:
        """The state of one key, for inspection."""
        if check_key(key, "key") is None:
            raise InvalidInput("key is missing.")

        def work(tx: Transaction) -> dict[str, Any]:
            found, _ = keyed_state.read(tx, groups.get(tx, stream, group).group_id, [key], tx.now())
            return found.get(key, {})

        return self._run(work, write=False)

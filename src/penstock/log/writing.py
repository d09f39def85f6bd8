"""Append and read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from penstock.core.event import Appended, AppendedMany, EventColumns, NewEvent, check_name
from penstock.core.events import Event, Events
from penstock.errors import CommitUnknown, InvalidInput
from penstock.log import appending, checking, outbox
from penstock.log.ids import EventIds
from penstock.log.transacting import Transacting, again
from penstock.stores.base import Transaction


class Writing(Transacting):
    """How events get into the log, and out of it without a group."""

    def append(
        self,
        stream: str,
        payload: Any,
        *,
        type: str | None = None,
        ordering_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        event_id: Any = None,
        available_at: datetime | None = None,
        partition_key: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        content_type: str | None = None,
        connection: Any = None,
    ) -> Appended:
        """Store one event. With `connection` it becomes part of the caller's transaction, and of nothing else.

        The same `event_id` again is stored once and answered with `duplicate=True`.
        """
        event, chosen = appending.one(
            stream,
            {
                "payload": payload,
                "type": type,
                "ordering_key": ordering_key,
                "headers": headers,
                "event_id": event_id,
                "available_at": available_at,
                "partition_key": partition_key,
                "metadata": metadata,
                "content_type": content_type,
            },
        )
        if connection is not None:
            return outbox.append(self.store, connection, event, chosen)

        def work(tx: Transaction) -> Appended:
            appended = outbox.run(self.store, tx, event, chosen)
            tx.wake()
            return appended

        try:
            offset = again(lambda: self.store.append_one(event))
            if offset is not None:
                return Appended(offset, event.event_id, duplicate=False)
            return self._run(work)
        except CommitUnknown as error:
            raise CommitUnknown(event_id=event.event_id) from error

    async def append_async(
        self,
        stream: str,
        payload: Any,
        *,
        connection: Any,
        type: str | None = None,
        ordering_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        event_id: Any = None,
        available_at: datetime | None = None,
        partition_key: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        content_type: str | None = None,
    ) -> Appended:
        """`append` on an async connection of the caller's."""
        event, chosen = appending.one(
            stream,
            {
                "payload": payload,
                "type": type,
                "ordering_key": ordering_key,
                "headers": headers,
                "event_id": event_id,
                "available_at": available_at,
                "partition_key": partition_key,
                "metadata": metadata,
                "content_type": content_type,
            },
        )
        return await outbox.append_async(self.store, connection, event, chosen)

    def append_many(self, stream: str, events: Iterable[Mapping[str, Any]]) -> AppendedMany:
        """Store many events in one transaction, at bulk speed: all of them or none."""
        listed = events if isinstance(events, list) else list(events)
        ready, ours = appending.many(stream, listed)
        try:
            return self._append(ready, ours)
        except (
            InvalidInput
        ):  # a payload that is not JSON: nothing was stored; the long way knows bytes, and better words
            return self._append(*appending.one_by_one(stream, listed))

    def _append(self, ready: Sequence[NewEvent] | EventColumns, ours: bool) -> AppendedMany:
        if not len(ready):
            return AppendedMany((), 0)
        ids = EventIds(ready.event_ids if isinstance(ready, EventColumns) else [one.event_id for one in ready])

        def work(tx: Transaction) -> int:
            known = tx.append(ready, unique=ours)
            tx.wake()
            return known

        try:
            duplicates = self._run(work)
        except CommitUnknown as error:
            raise CommitUnknown(event_id=ids[0]) from error
        return AppendedMany(ids, duplicates)

    def read(self, stream: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        """Events in offset order, up to the horizon: nothing can still appear between what is returned."""
        check_name(stream, "stream")
        horizon = self._run(lambda tx: tx.horizon(), write=False)
        found = self.store.read_events(stream, checking.count(after, "after"), horizon, checking.count(limit, "limit"))
        return list(Events(found, stream, None))

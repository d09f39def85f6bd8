"""Append: one event, or many at bulk speed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.core import trace
from penstock.core.event import Appended, AppendedMany, EventColumns, NewEvent
from penstock.core.observe import EventsAppended, everyone
from penstock.errors import CommitUnknown, InvalidInput
from penstock.log import new_events, outbox
from penstock.log.ids import EventIds
from penstock.log.transact import repeat, transact
from penstock.stores.base import Store, Transaction


def append(store: Store, stream: str, fields: Mapping[str, Any], connection: Any = None) -> Appended:
    """Store one event: in its own transaction, or in the caller's on its `connection`."""
    event, chosen = new_events.one(stream, trace.traced(fields))
    return append_event(store, event, chosen, connection)


def append_event(store: Store, event: NewEvent, chosen: bool, connection: Any = None) -> Appended:
    """Store an event that was checked."""
    if connection is not None:
        return outbox.append(store, connection, outbox.steps(store, event, chosen), chosen)

    def work(tx: Transaction) -> Appended:
        appended = outbox.run(tx, outbox.steps(store, event, chosen))
        tx.wake()
        return appended

    try:
        offset = repeat(lambda: store.append_one(event))
        stored = transact(store, work) if offset is None else Appended(offset, event.event_id, duplicate=False)
    except CommitUnknown as error:
        raise CommitUnknown(event_id=event.event_id) from error
    if everyone.listening:
        everyone.emit(EventsAppended(event.stream, 1 - stored.duplicate, int(stored.duplicate)))
    return stored


async def append_async(store: Store, stream: str, fields: Mapping[str, Any], connection: Any) -> Appended:
    """Store one event in the caller's transaction on an async connection."""
    event, chosen = new_events.one(stream, trace.traced(fields))
    return await outbox.append_async(store, connection, outbox.steps(store, event, chosen), chosen)


def append_many(store: Store, stream: str, events: Iterable[Mapping[str, Any]]) -> AppendedMany:
    """Store many events in one transaction: all of them or none."""
    listed = events if isinstance(events, list) else list(events)
    listed = trace.traced_all(listed)
    ready, ours = new_events.many(stream, listed)
    try:
        return append_ready(store, ready, ours)
    except InvalidInput:  # nothing was stored; checking one by one accepts bytes and names the bad event
        return append_ready(store, *new_events.one_by_one(stream, listed))


def append_ready(store: Store, ready: Sequence[NewEvent] | EventColumns, ours: bool) -> AppendedMany:
    """Store checked events in one transaction; `ours` promises that their ids are new."""
    if not len(ready):
        return AppendedMany((), 0)
    ids = EventIds(ready.event_ids if isinstance(ready, EventColumns) else [one.event_id for one in ready])

    def work(tx: Transaction) -> int:
        known = tx.append(ready, unique=ours)
        tx.wake()
        return known

    try:
        duplicates = transact(store, work)
    except CommitUnknown as error:
        raise CommitUnknown(event_id=ids[0]) from error
    if everyone.listening:
        _tell(ready, duplicates)
    return AppendedMany(ids, duplicates)


def _tell(ready: Sequence[NewEvent] | EventColumns, duplicates: int) -> None:
    """Emit what was appended. Of events for several streams it is not known which were duplicates: the first ones."""
    streams = {ready.stream: len(ready)} if isinstance(ready, EventColumns) else Counter(one.stream for one in ready)
    for stream, count in streams.items():
        known = min(count, duplicates)
        duplicates -= known
        everyone.emit(EventsAppended(stream, count - known, known))

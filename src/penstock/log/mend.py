"""Mend: a payload corrected by hand goes back as a new event, and the dead letter leaves the queue.

The new event is appended to the same stream, and so to the end of its key. It is meant for the group that failed: the
other groups of the stream have the old event, and each of them gets a row for the new one in the same transaction that
says DEAD, `mended`, so that they never receive it. Groups that are created later see both events.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from typing import Any, Final

import orjson

from penstock.core.delivery import Reason, State
from penstock.core.event import Appended, NewEvent, check_name, check_text, event_id
from penstock.core.group import Group
from penstock.core.job import PREFIX
from penstock.errors import IllegalTransition, PayloadUnchanged, UnknownEvent
from penstock.log import audit, checks, deliveries, groups, kill, new_events, purge
from penstock.log.deliveries import DeliveryRecord
from penstock.log.export import decoded
from penstock.log.selection import Selection
from penstock.log.transact import transact
from penstock.stores.base import Store, Transaction

MENDED_FROM: Final = "mended_from"  # in the metadata of the new event


def mend(
    store: Store,
    stream: str,
    group: str,
    event: Any,
    payload: Any,
    *,
    into: str | None,
    reason: str | None,
    by: str | None,
) -> Appended:
    """Append a mended copy of a dead letter's event and hide the dead letter, in one transaction.

    The id of the copy follows from the old one, the group and the payload, so that repeating it is harmless.
    """
    author, why = checks.author(by), check_text(reason, "reason")
    known, offset = checks.event_of(event)
    target = stream if into is None else check_name(into, "into")

    def work(tx: Transaction) -> Appended:
        mine, others = _lock(tx, stream, group, alone=target != stream)
        old = _dead_letter(tx, mine, known, offset, event)
        new = _copy(old, target, payload)
        there = tx.one("inspect.event", stream=target, event_id=new.event_id, offset=None)
        if there is not None:
            return Appended(there.offset, new.event_id, duplicate=True)
        if old.state is not State.DEAD or old.reason == Reason.MENDED:
            raise IllegalTransition(f"{old.event_id} is {old.state} ({old.reason}), and only a dead letter is mended.")
        tx.append([new], unique=False)
        there = tx.one("inspect.event", stream=target, event_id=new.event_id, offset=None)
        assert there is not None
        purge.move(tx, mine, [old.offset], author, tx.now(), Reason.MENDED)
        for other in others:
            _keep_from(tx, other, new.event_id, mine, author)
        detail = {"event_id": str(old.event_id), "new_event_id": str(new.event_id), "into": target}
        audit.record_for(tx, author, "mend", mine, 1, detail | ({} if why is None else {"reason": why}))
        return Appended(there.offset, new.event_id, duplicate=False)

    return transact(store, work)


def _lock(tx: Transaction, stream: str, group: str, *, alone: bool) -> tuple[Group, list[Group]]:
    """Lock the group, and the other groups of its stream unless it is `alone`: by name, as everybody who locks many."""
    groups.get(tx, stream, group)
    names = [one.group_name for one in groups.every(tx, stream) if not alone or one.group_name == group]
    held = [groups.locked(tx, stream, name) for name in names]
    mine = next(one for one in held if one.group_name == group)
    return mine, [one for one in held if one.group_name != group]


def _dead_letter(
    tx: Transaction, group: Group, known: uuid.UUID | None, offset: int | None, named: Any
) -> DeliveryRecord:
    row = tx.one("inspect.event", stream=group.stream, event_id=known, offset=offset)
    which = Selection(event_ids=[] if row is None else [row.event_id])
    found = deliveries.page(tx, group.stream, group.group_name, which, state=None, after=0, limit=1) if row else []
    if not found:
        raise UnknownEvent(f"The group {group.group_name!r} on {group.stream!r} has no delivery of {named}.")
    return found[0]


def _copy(old: DeliveryRecord, stream: str, payload: Any) -> NewEvent:
    """Make the new event: all of the old one but its payload, and the name of the old one in its metadata."""
    fields: Mapping[str, Any] = {
        "payload": payload,
        "type": old.event_type,
        "ordering_key": old.ordering_key,
        "partition_key": old.partition_key,
        "headers": old.headers or None,
        "metadata": {**old.metadata, MENDED_FROM: {"event_id": str(old.event_id), "group": old.group}},
        "content_type": old.content_type if isinstance(payload, bytes) else None,
    }
    new, _ = new_events.one(stream, fields, job=stream.startswith(PREFIX) and stream == old.stream)
    if new.payload == old.payload or (not isinstance(payload, bytes) and decoded(old.payload) == payload):
        raise PayloadUnchanged(f"{old.event_id} has this payload already; nothing was mended.")
    digest = hashlib.sha256(new.payload).hexdigest()
    names = orjson.dumps([str(old.event_id), old.stream, old.group, stream, digest]).decode()
    return new._replace(event_id=event_id(f"penstock mend {names}"))


def _keep_from(tx: Transaction, group: Group, new: uuid.UUID, meant: Group, by: str) -> None:
    """Let a group never receive the new event, if it would."""
    found = tx.rows("operate.find", group_id=group.group_id, stream=group.stream, ids=[new])
    if found:
        why = f"mended for the group {meant.group_name}"
        offsets = kill.bury(tx, group, found, why, by)
        tx.run("purge.move", group_id=group.group_id, offsets=offsets, outcome=Reason.MENDED, now=tx.now())

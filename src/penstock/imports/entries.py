"""Make events of a source's entries: checked as every append is, or rejected with a reason."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from penstock.core.delivery import State
from penstock.core.event import NewEvent, event_id
from penstock.core.imported import FROM, Found, Taken, Was
from penstock.core.job import PREFIX
from penstock.core.limits import METADATA_BYTES, REJECTED_BYTES
from penstock.errors import InvalidInput
from penstock.imports.fields import shown
from penstock.imports.source import Source
from penstock.log import new_events

REJECTED = "import.rejected"  # the type of events that tell of entries which cannot be events
UNFIT = "unfit"  # the reason that a source gives itself


class Made(NamedTuple):
    """What became of an entry; `why` is the code of the reason if it was rejected."""

    taken: Taken
    why: str | None = None


def make(source: Source, found: Found, now: datetime) -> Made:
    """Return the event of an entry with its states, or an event that says why it cannot be one."""
    if found.unfit is not None:
        return Made(Taken(_rejected(source, found, found.unfit), {}), UNFIT)
    due = _due(found.states, now)
    try:
        event = _event(found, due)
    except InvalidInput as error:
        return Made(Taken(_rejected(source, found, error.message), {}), error.code)
    return Made(Taken(event, {group: _ours(was, now, due) for group, was in found.states.items()}))


def _event(found: Found, due: datetime | None) -> NewEvent:
    fields = dict(found.fields)
    metadata = fields.get("metadata") or {}
    if FROM in metadata and len(orjson.dumps(metadata, default=str)) > METADATA_BYTES:  # ours must not be too much
        fields["metadata"] = {name: value for name, value in metadata.items() if name != FROM}
    if due is not None:
        fields["available_at"] = due
    return new_events.one(found.stream, fields, job=found.stream.startswith(PREFIX))[0]


def _due(states: Mapping[str, Was], now: datetime) -> datetime | None:
    """Return when an event of one group is due that nobody has tried yet: that is a field of the event itself."""
    if len(states) != 1:
        return None
    (was,) = states.values()
    if was.state is not State.PENDING or was.attempts or was.available_at is None or was.available_at <= now:
        return None
    return was.available_at


def _ours(was: Was, now: datetime, due: datetime | None) -> Was:
    """Return a state as ours: what was being worked on waits; a time that has passed, or is the event's, goes."""
    if was.state is State.CLAIMED:
        return Was(State.PENDING, was.attempts, was.error)
    if was.available_at is not None and (was.available_at <= now or was.available_at == due):
        return was._replace(available_at=None)
    return was


def _rejected(source: Source, found: Found, reason: str) -> NewEvent:
    said: dict[str, Any] = {
        "source": source.name,
        "position": found.position,
        "stream": found.stream,
        "reason": reason,
        "states": {group: was.state for group, was in found.states.items()},
        "type": _shown(found.fields.get("type")),
        "id": _shown(found.fields.get("event_id")),
    }
    payload = found.fields.get("payload")
    if isinstance(payload, bytes) and len(payload) <= REJECTED_BYTES:
        said["payload"] = {"base64": b64encode(payload).decode()}
    known = event_id(f"{source.name} rejected {orjson.dumps(found.position).decode()}")
    stream = source.system if found.stream.startswith(PREFIX) else found.stream  # plain events are no jobs
    return new_events.one(f"{stream}.rejected", {"payload": said, "type": REJECTED, "event_id": known})[0]


def _shown(value: Any) -> str | None:
    return None if value is None else shown(value, 200)

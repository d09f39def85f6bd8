"""Documents of the service as the objects that the log returns."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any, TypeVar

import orjson

from penstock.core.batch import Claimed, Event, Events
from penstock.core.columns import RowColumns
from penstock.core.delivery import State
from penstock.core.job import Job
from penstock.core.lease import Settled
from penstock.errors import CommitUnknown, PenstockError, StoreUnavailable, all_errors
from penstock.log.cancel import Cancelled
from penstock.log.deliveries import Attempt, DeliveryRecord
from penstock.log.fingerprints import FingerprintStats
from penstock.log.jobs.schedules import Schedule
from penstock.log.runs import RunInfo
from penstock.log.selection import Moved
from penstock.log.series import Point, Series
from penstock.log.stats import GroupStats, Stats, StreamStats

T = TypeVar("T")


def made(cls: type[T], document: Mapping[str, Any], **more: Any) -> T:
    """Return a record with those of its fields that a document has; times and ids are decoded."""
    known = {one.name for one in fields(cls)}  # type: ignore[arg-type]  # all of them are dataclasses
    return cls(**{name: _value(name, value) for name, value in document.items() if name in known} | more)


def _value(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name == "at" or name.endswith("_at"):
        return datetime.fromisoformat(value)
    return uuid.UUID(value) if name in ("event_id", "last_job") else value


def body_of(document: Mapping[str, Any]) -> bytes:
    """Return a payload, which clients ask for in base64; empty if the token may not see it."""
    found = document.get("payload")
    return b"" if found is None else base64.b64decode(found["base64"])


def events_of(documents: Sequence[Mapping[str, Any]], stream: str, lease: Mapping[str, Any] | None = None) -> Events:
    """Return events, read without a group or as the members of a lease."""
    if lease is None:
        return Events(RowColumns([_row(one) for one in documents]), stream, None)
    rows = [(*_row(one), *_retries(one)) for one in documents]
    claimed = Claimed(datetime.fromisoformat(lease["claimed_at"]), lease["claimed_by"], 1, 0)
    return Events(RowColumns(rows), stream, claimed)


def _row(one: Mapping[str, Any]) -> tuple[Any, ...]:
    return (
        one["offset"],
        one["event_id"],
        one["event_type"],
        body_of(one),
        one["content_type"],
        orjson.dumps(one["headers"]).decode(),
        orjson.dumps(one["metadata"]).decode(),
        one["partition_key"],
        one["ordering_key"],
        _value("available_at", one["available_at"]),
        _value("created_at", one["created_at"]),
    )


def _retries(one: Mapping[str, Any]) -> tuple[Any, ...]:
    return one["attempts"], one["failures"], one["last_error"], 0, one["total_attempts"] - one["attempts"]


def event_of(document: Mapping[str, Any]) -> Event:
    """Return one event."""
    return events_of([document], document["stream"])[0]


def job_of(document: Mapping[str, Any]) -> Job:
    """Return a job."""
    status = State(document["status"])
    return made(Job, document, id=uuid.UUID(document["id"]), status=status, payload=body_of(document))


def delivery_of(document: Mapping[str, Any]) -> DeliveryRecord:
    """Return a delivery, with its history if it was sent."""
    history = tuple(made(Attempt, line) for line in document.get("history", ()))
    return made(DeliveryRecord, document, state=State(document["state"]), payload=body_of(document), history=history)


def schedule_of(document: Mapping[str, Any]) -> Schedule:
    """Return a schedule; its payload is None if the token may not see it."""
    payload = orjson.loads(body_of(document)) if "payload" in document else None
    return made(Schedule, document, payload=payload)


def run_of(document: Mapping[str, Any]) -> RunInfo:
    """Return a run of an engine."""
    return made(RunInfo, document, groups=tuple(document["groups"]))


def stats_of(document: Mapping[str, Any]) -> Stats:
    """Return the stats."""
    streams = tuple(made(StreamStats, one) for one in document["streams"])
    return Stats(document["horizon"], streams, tuple(made(GroupStats, one) for one in document["groups"]))


def series_of(document: Mapping[str, Any]) -> Series:
    """Return numbers over time."""
    times = {name: datetime.fromisoformat(document[name]) for name in ("since", "until")}
    return made(Series, document, **times, points=tuple(made(Point, one) for one in document["points"]))


def kind_of(document: Mapping[str, Any]) -> FingerprintStats:
    """Return a kind of error."""
    samples = tuple(uuid.UUID(one) for one in document["sample_event_ids"])
    return made(FingerprintStats, document, trend=tuple(document["trend"]), sample_event_ids=samples)


def moved_of(document: Mapping[str, Any]) -> Moved:
    """Return how many deliveries an action moved."""
    return made(Moved, document)


def cancelled_of(document: Mapping[str, Any]) -> Cancelled:
    """Return how many deliveries were cancelled."""
    return made(Cancelled, document)


def settled_of(document: Mapping[str, Any]) -> Settled:
    """Return what a settle did, without the leases that go on."""
    return made(Settled, document, kept=())


def error_of(status: int, content: bytes) -> PenstockError:
    """Return the error that an answer stands for: of the class that has its code."""
    try:
        document = orjson.loads(content)
        code, message = document["code"], document["message"]
    except (ValueError, KeyError, TypeError):  # not ours: of a proxy, perhaps
        kind = StoreUnavailable if status >= 500 else PenstockError
        return kind(f"The service answered {status}, and not as Penstock does.")
    if code == CommitUnknown.code:
        return CommitUnknown(message, event_id=document.get("event_id"))
    return all_errors().get(code, PenstockError)(message)

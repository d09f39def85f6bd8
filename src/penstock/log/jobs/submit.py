"""Submit: store a job as an event, in its own transaction or in the caller's."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.core import codec, trace
from penstock.core.event import NewEvent
from penstock.core.job import (
    QUEUE,
    SETTINGS,
    Job,
    JobName,
    check_job_name,
    check_max_attempts,
    name_of,
)
from penstock.errors import CommitUnknown, InvalidInput, JobExists, MissingField
from penstock.log import append, checks, new_events, outbox
from penstock.log.jobs import cancel
from penstock.log.jobs.types import check_payloads, has_schema
from penstock.log.transact import transact
from penstock.stores.base import Store, Transaction

CONFLICTS: Final = ("skip", "replace", "raise")
_OPTIONS: Final = frozenset(
    {"payload", "type", "queue", "priority", "max_attempts", "available_at", "event_id", "headers"}
)


@dataclass(frozen=True, slots=True)
class Submitted:
    """The result of `submit_many`, ids in the order given."""

    ids: Sequence[uuid.UUID]
    duplicates: int


@dataclass(frozen=True, slots=True)
class Unique:
    """A key that only one unfinished job of a type has."""

    key: str
    seconds: float | None  # it is kept at least this long, even if the job has finished
    on_conflict: str


def check_unique(unique: Any, seconds: Any, on_conflict: Any) -> Unique | None:
    """Check the options of a unique job."""
    if on_conflict not in CONFLICTS:
        raise InvalidInput(f"on_conflict is one of {', '.join(CONFLICTS)}, not {str(on_conflict)[:60]!r}.")
    if unique is None:
        if seconds is not None:
            raise InvalidInput("unique_for needs unique, the key.")
        return None
    kept = None if seconds is None else checks.seconds(seconds, "unique_for")
    return Unique(checks.required_key(unique, "unique"), kept, on_conflict)


def submit(store: Store, name: JobName, fields: Mapping[str, Any], unique: Unique | None, connection: Any) -> Job:
    """Store a job. If an unfinished job has its unique key, return that one, replace it, or raise `JobExists`."""
    event, chosen = new_job(name, fields)
    check_payloads(store, name, [event.payload])
    if unique is None:
        stored = append.append_event(store, event, chosen, connection)
        return job_of(event, duplicate=stored.duplicate)
    if connection is not None:
        if unique.on_conflict == "replace":
            raise InvalidInput('on_conflict="replace" works on another job, and so not in the caller\'s transaction.')
        holder, known = outbox.append(store, connection, _steps(store, event, chosen, unique), guarded=chosen)
        return _answer(event, holder, known, unique)

    def work(tx: Transaction) -> tuple[uuid.UUID, bool]:
        holder, known = outbox.run(tx, _steps(store, event, chosen, unique))
        if holder != event.event_id and unique.on_conflict == "replace":
            cancel.replace_waiting(tx, holder)
            holder, known = outbox.run(tx, _steps(store, event, chosen, unique, always=True))
        tx.wake()
        return holder, known

    try:
        return _answer(event, *transact(store, work), unique)
    except CommitUnknown as error:
        raise CommitUnknown(event_id=event.event_id) from error


def _steps(
    store: Store, event: NewEvent, chosen: bool, unique: Unique, *, always: bool = False
) -> outbox.Steps[tuple[uuid.UUID, bool]]:
    """Take the key, and store the job if it got it; returns whose the key is, and whether the job was stored before."""
    name = name_of(event.stream)
    assert name is not None
    params = {
        "queue": name.queue,
        "job_type": name.type,
        "unique_key": unique.key,
        "event_id": event.event_id,
        "seconds": unique.seconds,
        "now_at": store.told_now,
        "always": always,
    }
    row = yield "unique.take", store.neutral_params(params)
    assert row is not None, "somebody has the key"
    holder = uuid.UUID(str(row[0]))
    if holder != event.event_id:
        return holder, True
    stored = yield from outbox.steps(store, event, chosen)
    return holder, stored.duplicate


def _answer(event: NewEvent, holder: uuid.UUID, known: bool, unique: Unique) -> Job:
    if holder == event.event_id:
        return job_of(event, duplicate=known)
    if unique.on_conflict == "raise":
        raise JobExists(f"The unfinished job {holder} has the unique key {unique.key!r}.")
    return replace(job_of(event, duplicate=True), id=holder)


def submit_many(store: Store, jobs: Iterable[Mapping[str, Any]], defaults: Mapping[str, Any]) -> Submitted:
    """Store many jobs in one transaction: all of them or none."""
    listed = jobs if isinstance(jobs, list) else list(jobs)
    name = _only_name(listed, defaults)
    if name is not None:
        return _submit_alike(store, name, [{"payload": job["payload"], "type": name.type} for job in listed])
    by_stream: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for position, job in enumerate(listed):
        try:
            name, fields = _item(job, defaults)
        except InvalidInput as error:
            raise type(error)(f"Job {position}: {error.message}") from error
        by_stream.setdefault(name.stream, []).append((position, fields))
    if len(by_stream) == 1:
        ((stream, items),) = by_stream.items()
        return _submit_alike(store, name_of(stream), [fields for _, fields in items])
    for stream, items in by_stream.items():
        _check_all(store, stream, [fields["payload"] for _, fields in items])
    placed: list[tuple[int, NewEvent]] = []
    ours = True
    for stream, items in by_stream.items():
        events, new = new_events.one_by_one(stream, trace.traced_all([fields for _, fields in items]), job=True)
        placed += [(position, event) for (position, _), event in zip(items, events, strict=True)]
        ours = ours and new
    ordered = [event for _, event in sorted(placed, key=lambda one: one[0])]
    stored = append.append_ready(store, ordered, ours)
    return Submitted(stored.event_ids, stored.duplicates)


def _only_name(jobs: list[Any], defaults: Mapping[str, Any]) -> JobName | None:
    """Return what the jobs are called if they differ in nothing but the payload; None if each needs a look."""
    try:
        if not jobs or set().union(*jobs) - {"payload", "type"} or defaults.get("max_attempts") is not None:
            return None
        usual = defaults.get("type")
        if any(job["payload"] is None for job in jobs) or len(types := {job.get("type", usual) for job in jobs}) > 1:
            return None
        return check_job_name(types.pop(), defaults.get("queue", QUEUE), defaults.get("priority", 0))
    except (TypeError, KeyError, AttributeError, InvalidInput):
        return None  # whoever looks at each says which is wrong


def _submit_alike(store: Store, name: JobName | None, jobs: list[dict[str, Any]]) -> Submitted:
    """Store jobs of one stream."""
    assert name is not None
    _check_all(store, name.stream, [fields["payload"] for fields in jobs])
    jobs = trace.traced_all(jobs)
    ready, ours = new_events.many(name.stream, jobs, job=True)
    try:
        stored = append.append_ready(store, ready, ours)
    except InvalidInput:  # nothing was stored; checking one by one accepts bytes and names the bad job
        stored = append.append_ready(store, *new_events.one_by_one(name.stream, jobs, job=True))
    return Submitted(stored.event_ids, stored.duplicates)


def _check_all(store: Store, stream: str, payloads: list[Any]) -> None:
    name = name_of(stream)
    assert name is not None
    if has_schema(store, name):
        check_payloads(store, name, [codec.encode_payload(one, None)[0] for one in payloads])


def _item(job: Any, defaults: Mapping[str, Any]) -> tuple[JobName, dict[str, Any]]:
    if not isinstance(job, Mapping):
        raise InvalidInput(f"a job must be a mapping with its payload, not {type(job).__name__}.")
    odd = job.keys() - _OPTIONS
    if odd:
        raise InvalidInput(f"unknown field {sorted(map(str, odd))[0]!r}; known are {', '.join(sorted(_OPTIONS))}.")
    if job.get("payload") is None:
        raise MissingField("payload is missing.")
    given = {**defaults, **job}
    name = check_job_name(given.get("type"), given.get("queue", QUEUE), given.get("priority", 0))
    return name, event_fields(name, given)


def event_fields(name: JobName, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a job's event; the settings of this one job travel in its metadata."""
    attempts = check_max_attempts(given.get("max_attempts"))
    fields = {key: given[key] for key in ("available_at", "event_id", "headers") if given.get(key) is not None}
    if attempts is not None:
        fields["metadata"] = {SETTINGS: {"max_attempts": attempts}}
    return {"payload": given.get("payload"), "type": name.type, **fields}


def new_job(name: JobName, given: Mapping[str, Any]) -> tuple[NewEvent, bool]:
    """Return the checked event of a job, and whether the caller chose its id."""
    return new_events.one(name.stream, trace.traced(event_fields(name, given)), job=True)


def job_of(event: NewEvent, *, duplicate: bool) -> Job:
    """Return a job as it was submitted."""
    name = name_of(event.stream)
    assert name is not None
    return Job(
        id=event.event_id,
        type=name.type,
        queue=name.queue,
        priority=name.priority,
        payload=event.payload,
        available_at=event.available_at,
        duplicate=duplicate,
    )

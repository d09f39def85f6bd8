"""The requests of jobs."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict, Unpack

import orjson

from penstock.connect.http import decode
from penstock.connect.http.call import Call, given, path_of
from penstock.connect.http.calls import encoded
from penstock.connect.http.held import HeldTokens
from penstock.core import codec
from penstock.core.job import QUEUE, Job
from penstock.core.signals import Permanent, RetryLater
from penstock.log.ids import uuid7
from penstock.log.jobs.submit import Submitted


class JobOptions(TypedDict, total=False):
    """What `submit` takes besides the type and the payload; see `Log.submit`."""

    queue: str
    priority: int
    max_attempts: int | None
    available_at: datetime | None
    event_id: Any
    headers: Mapping[str, str] | None
    unique: str | None
    unique_for: float | None
    on_conflict: str


def submit(type: str, payload: Any, **options: Unpack[JobOptions]) -> Call[Job]:
    """Store a job for the workers of its type; see `Log.submit`. It gets its id here: `CommitUnknown` names it."""
    chosen = options.get("event_id") or uuid7()
    body = {**given(**options), "type": type, "payload": encoded(payload), "event_id": chosen}
    return Call("POST", path_of("jobs"), decode.job_of, body, event_id=chosen)


def submit_many(
    type: str | Iterable[Mapping[str, Any]],
    jobs: Iterable[Mapping[str, Any]] | None = None,
    *,
    queue: str = QUEUE,
    priority: int = 0,
    max_attempts: int | None = None,
) -> Call[Submitted]:
    """Store many jobs in one transaction: all of them or none; see `Log.submit_many`."""
    defaults = given(queue=queue, priority=priority, max_attempts=max_attempts)
    if isinstance(type, str):
        defaults["type"] = type
    listed = type if not isinstance(type, str) else jobs or ()
    body = {"jobs": [{**defaults, **given(**one), "payload": encoded(one.get("payload"))} for one in listed]}

    def read(document: Any) -> Submitted:
        return Submitted([uuid.UUID(one) for one in document["ids"]], document["duplicates"])

    return Call("POST", path_of("jobs", "batch"), read, body)


# --- work ---------------------------------------------------------------------------------------------------------


def claim_job(
    held: HeldTokens,
    worker: str,
    types: Sequence[str] | None = None,
    queue: str = QUEUE,
    lease_seconds: float | None = None,
    *,
    wait: float = 0.0,
    idempotency_key: str | None = None,
) -> Call[Job | None]:
    """Claim a job: the highest priority first, then the oldest; None if none is due in `wait` seconds (20)."""

    def read(document: Any) -> Job | None:
        found = None if document is None else decode.job_of(document)
        held.add([] if found is None else [found])
        return found

    body = given(worker=worker, types=types, queue=queue, lease_seconds=lease_seconds, wait=wait)
    return Call("POST", path_of("jobs", "claim"), read, body, key=idempotency_key, wait=wait)


def claim_jobs(
    held: HeldTokens,
    worker: str,
    types: Sequence[str] | None = None,
    queue: str = QUEUE,
    lease_seconds: float | None = None,
    *,
    limit: int = 1,
    wait: float = 0.0,
    idempotency_key: str | None = None,
) -> Call[list[Job]]:
    """Claim up to `limit` jobs at once, each with a token of its own."""

    def read(document: Any) -> list[Job]:
        found = [] if document is None else [decode.job_of(one) for one in document["jobs"]]
        held.add(found)
        return found

    body = given(worker=worker, types=types, queue=queue, lease_seconds=lease_seconds, limit=limit, wait=wait)
    return Call("POST", path_of("jobs", "claim"), read, body, key=idempotency_key, wait=wait)


def heartbeat(
    held: HeldTokens,
    id: Any,
    worker: str,
    *,
    token: int | None = None,
    progress: float | None = None,
    message: str | None = None,
) -> Call[str]:
    """Extend the lease of a job: "extended", or "cancel" if the job should end."""
    body = given(worker=worker, token=held.token(id, worker, token), progress=progress, message=message)
    return Call("POST", path_of("jobs", id, "heartbeat"), lambda found: str(found["outcome"]), body)


def complete_job(held: HeldTokens, id: Any, worker: str, *, token: int | None = None, result: Any = None) -> Call[None]:
    """Finish a job and keep its result; the same call again is harmless."""
    body = given(worker=worker, token=held.token(id, worker, token))
    if result is not None:
        body["result"] = orjson.Fragment(codec.encode_json(result))
    return Call("POST", path_of("jobs", id, "complete"), _nothing, body)


def fail_job(
    held: HeldTokens,
    id: Any,
    worker: str,
    *,
    token: int | None = None,
    error: Any = None,
    retry_in: float | None = None,
) -> Call[None]:
    """Report a failure: the job is retried after its backoff, or `retry_in` seconds, or it is DEAD."""
    after = error.after_seconds if isinstance(error, RetryLater) and retry_in is None else retry_in
    body = given(
        worker=worker,
        token=held.token(id, worker, token),
        error=None if error is None else failure(error),
        retry_in=after,
        permanent=isinstance(error, Permanent) or None,
    )
    return Call("POST", path_of("jobs", id, "fail"), _nothing, body)


def failure(error: Any) -> Any:
    """Return an error as it is sent: a text, or the text and the code of an exception."""
    if isinstance(error, str):
        return codec.error_text(error)
    return {"message": codec.error_text(error), "code": codec.error_code(error)}


def heartbeats(leases: Mapping[int, int], seconds: float = 30.0) -> Call[dict[int, str]]:
    """Extend many leases, given by id and token; by id: "extended", "lost", "cancel" or "settling"."""
    body = {"leases": [{"id": one, "token": token} for one, token in leases.items()], "seconds": seconds}
    return Call(
        "POST", path_of("heartbeats"), lambda found: {one["id"]: one["outcome"] for one in found["leases"]}, body
    )


def _nothing(document: Any) -> None:
    return None


# --- look and cancel ----------------------------------------------------------------------------------------------


def job(id: Any, *, wait: float = 0.0) -> Call[Job]:
    """Return a job; with `wait` when it is finished, or as it is after so many seconds (at most 20)."""
    return Call("GET", path_of("jobs", id), decode.job_of, params={"wait": wait}, wait=wait)


def jobs(
    *,
    queue: str | None = None,
    type: str | None = None,
    state: str | None = None,
    after: int = 0,
    limit: int = 1000,
) -> Call[list[Job]]:
    """Return jobs in the order of their submission; pass the last one's `offset` as `after` for the next page."""
    params = given(queue=queue, type=type, state=state, cursor=after, limit=limit)
    return Call("GET", path_of("jobs"), lambda found: [decode.job_of(one) for one in found["jobs"]], params=params)


def cancel_job(id: Any) -> Call[Job]:
    """Cancel a job: a waiting one is DEAD at once, a running one is told with its next heartbeat."""
    return Call("POST", path_of("jobs", id, "cancel"), decode.job_of)

"""Jobs for those who submit them and for those who look at them."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import ConfigDict, Field

from penstock.core.access import APPEND, OPERATE, READ, Access
from penstock.core.event import event_id
from penstock.core.job import QUEUE, Job, check_job_name
from penstock.http.answers import Answer, job_document
from penstock.http.bodies import Body, Moment, Number, StrictRoute, Whole, payload_of
from penstock.http.events import ID
from penstock.http.given import (
    CanAppend,
    CanOperate,
    CanRead,
    Cursor,
    IdempotencyKey,
    Limit,
    Shown,
    TheLog,
    ThePolls,
    Wait,
    next_cursor,
    require,
)
from penstock.http.shapes import page, ref
from penstock.http.spec import spec
from penstock.log.jobs.look import FINISHED
from penstock.log.log import Log

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], route_class=StrictRoute)
JOB = {
    "id": ID,
    "type": "email:send",
    "queue": "default",
    "priority": 0,
    "status": "PENDING",
    "attempts": 0,
    "failures": 0,
    "max_attempts": 3,
    "worker": None,
    "heartbeat_at": None,
    "created_at": "2026-07-01T12:00:00+00:00",
    "progress": None,
    "error": None,
    "offset": 42,
    "duplicate": False,
    "payload": {"to": "ada"},
    "result": None,
}


class NewJob(Body):
    """A job. `type` and `payload` are required; the same `event_id` is stored once."""

    model_config = ConfigDict(
        json_schema_extra={
            "required": ["type", "payload"],
            "examples": [{"type": "email:send", "payload": {"to": "ada"}, "priority": 5}],
        }
    )

    type: str | None = None
    payload: Any = Field(None, description='JSON, or `{"base64": …}` for bytes.')
    queue: str = QUEUE
    priority: Whole = Field(0, description="0 to 9; 9 is claimed first.")
    max_attempts: Whole | None = None
    available_at: Moment | None = None
    event_id: str | None = Field(None, description="A uuid or a ULID: the id of the job.")
    headers: dict[str, str] | None = None

    def fields(self, access: Access) -> dict[str, Any]:
        """Return the job as the log takes it, if the caller may submit to its stream."""
        require(access, APPEND, check_job_name(self.type, self.queue, self.priority).stream)
        return self.given() | {"payload": payload_of(self.payload)}


class UniqueJob(NewJob):
    """A job, perhaps with a key that only one unfinished job of its type has."""

    unique: str | None = None
    unique_for: Number | None = None
    on_conflict: str = Field("skip", description="`skip`, `replace` or `raise`.")


class NewJobs(Body):
    """Many jobs, stored in one transaction: all of them or none."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"jobs": [{"type": "email:send", "payload": {"to": "ada"}}]}]}
    )

    jobs: list[NewJob]


_SUBMIT = ("missing_field", "invalid_payload", "invalid_job", "naive_datetime", "duplicate_mismatch", "commit_unknown")


@router.post("", **spec("append", JOB, *_SUBMIT, "job_exists", shape=ref("Job"), status=201))
def submit(log: TheLog, access: CanAppend, shown: Shown, body: UniqueJob, key: IdempotencyKey = None) -> Answer:
    """Store a job for the workers of its type. An `Idempotency-Key` stands for an `event_id` that is not given."""
    fields = body.fields(access)
    if key is not None and fields.get("event_id") is None:
        fields["event_id"] = event_id(f"{access.name}/{key}")
    job = log.submit(fields.pop("type"), fields.pop("payload"), **fields)
    return Answer(job_document(job, shown), status_code=201)


@router.post("/batch", **spec("append", {"ids": [ID], "duplicates": 0}, *_SUBMIT, status=201))
def submit_many(log: TheLog, access: CanAppend, body: NewJobs) -> Answer:
    """Store many jobs in one transaction: all of them or none."""
    submitted = log.submit_many([one.fields(access) for one in body.jobs])
    return Answer({"ids": [str(one) for one in submitted.ids], "duplicates": submitted.duplicates}, 201)


@router.get("", **spec("read", {"jobs": [JOB], "next_cursor": None}, shape=page("jobs", "Job"), reads=True))
def jobs(
    log: TheLog,
    access: CanRead,
    shown: Shown,
    queue: str | None = None,
    type: str | None = None,
    state: str | None = None,
    cursor: Cursor = 0,
    limit: Limit = 100,
) -> Answer:
    """List jobs in the order of their submission; those of streams that the token may not read are left out."""
    found = log.jobs(queue=queue, type=type, state=state, after=cursor, limit=limit)
    documents = [job_document(one, shown) for one in found if access.may(READ, one.stream)]
    return Answer({"jobs": documents, "next_cursor": next_cursor(found, limit)})


@router.get("/{job_id}", **spec("read", JOB, "unknown_job", shape=ref("Job"), reads=True))
async def job(
    request: Request, log: TheLog, polls: ThePolls, access: CanRead, shown: Shown, job_id: str, wait: Wait = 0
) -> Answer:
    """Return a job; with `wait` when it is finished, or as it is after so many seconds (20 at most)."""

    def look() -> Job:
        one = log.job(job_id)
        require(access, READ, one.stream)
        return one

    found = await polls.until(request, wait, look, lambda one: one.status in FINISHED)
    return Answer(job_document(found, shown))


@router.post("/{job_id}/cancel", **spec("operate", JOB | {"status": "DEAD"}, "unknown_job", shape=ref("Job")))
def cancel(log: TheLog, access: CanOperate, shown: Shown, job_id: str) -> Answer:
    """Cancel a job: a waiting one at once, a running one with its next heartbeat."""
    require_job(log, access, OPERATE, job_id)
    return Answer(job_document(log.cancel_job(job_id, by=access.name), shown))


def require_job(log: Log, access: Access, scope: str, job_id: str) -> Job | None:
    """`Forbidden` unless a scope is granted for the stream of a job; it is looked up only if that matters."""
    if access.may_everywhere(scope):
        return None
    found = log.job(job_id)
    require(access, scope, found.stream)
    return found

"""Jobs for those who work on them: claim, heartbeat, complete, fail."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Request
from pydantic import ConfigDict, Field
from starlette.responses import Response

from penstock.core.access import WORK, Access
from penstock.core.job import PREFIX, QUEUE, check_queue
from penstock.core.lease import Idle
from penstock.core.signals import Permanent
from penstock.http.answers import Answer, job_document
from penstock.http.bodies import Body, Flag, Number, StrictRoute, Whole
from penstock.http.events import ID
from penstock.http.given import CanWork, Carried, IdempotencyKey, TheLog, ThePolls, Wait, require
from penstock.http.jobs import JOB, require_job
from penstock.http.leases import nothing, token_of
from penstock.http.outcomes import Failed, error_of
from penstock.http.shapes import an_object, either, many, ref
from penstock.http.spec import spec
from penstock.log.log import Log

_AGAIN_SECONDS: Final = 0.1  # where a job seems to be due, and another worker was faster or an append is under way
router = APIRouter(prefix="/v1/jobs", tags=["jobs"], route_class=StrictRoute)


class ClaimJob(Body):
    """Which jobs to claim, for whom, and how long to wait for one."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"worker": "w-1", "types": ["email:send"], "wait": 20}]})

    worker: str | None = Field(default=None, description="Who works on it; else the name of the token.")
    types: Annotated[list[str], Field(max_length=1_000)] | None = None
    queue: str = QUEUE
    lease_seconds: Number | None = None
    limit: Annotated[Whole, Field(ge=1, le=1_000)] | None = Field(default=None, description='Many, as `{"jobs": […]}`.')
    wait: Annotated[Number, Field(ge=0)] = 0.0


class OfWorker(Body):
    """Who holds the job, and the token of its claim."""

    worker: str | None = Field(None, description="As in the claim; else the name of the token.")
    token: Whole | str


class Heartbeat(OfWorker):
    """How far the job has come."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"worker": "w-1", "token": 1048577, "progress": 0.4}]})

    progress: Number | None = None
    message: str | None = None


class Complete(OfWorker):
    """What the job returned."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"worker": "w-1", "token": 1048577, "result": {"sent": 3}}]}
    )

    result: Any = None


class Fail(OfWorker):
    """Why the job failed, and whether another attempt makes sense."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"worker": "w-1", "token": 1048577, "error": "no such address"}]}
    )

    error: Failed | str | None = None
    retry_in: Number | None = Field(None, description="Seconds to wait instead of the backoff.")
    permanent: Flag = Field(False, description="DEAD at once.")


@router.post(
    "/claim",
    **spec(
        "work",
        JOB | {"status": "CLAIMED", "worker": "w-1", "token": 1048577},
        "lease_lost",
        "key_reused",
        shape=either(ref("ClaimedJob"), an_object(jobs=many("ClaimedJob"))),
        or_empty="No job is due.",
    ),
)
async def claim(
    request: Request,
    log: TheLog,
    polls: ThePolls,
    access: CanWork,
    carried: Carried,
    body: ClaimJob | None = None,
    key: IdempotencyKey = None,
    wait: Wait = 0,
) -> Response:
    """Claim the job with the highest priority, then the oldest; with `limit` up to so many as `{"jobs": […]}`.

    A repeated request with the same `Idempotency-Key` gets the same jobs; with a key, all jobs of an answer are of one
    type and priority.
    """
    asked = body or ClaimJob()
    worker = access.name if asked.worker is None else asked.worker

    def attempt() -> list[dict[str, Any]] | Idle:
        _require_types(log, access, asked)
        what = (worker, asked.types, asked.queue, asked.lease_seconds)
        limit = asked.limit or 1
        if key is None:
            found = log.claim_jobs(*what, limit=limit)
        else:
            found = log.claim_jobs_once(access.name, key, *what, limit=limit)
        if found:
            return [job_document(one, carried, claimed=True) for one in found]
        return log.job_claims.idle(asked.types, asked.queue) or Idle(None, seconds=_AGAIN_SECONDS)

    line = (asked.queue, None if asked.types is None else frozenset(asked.types))
    claimed = await polls.claimed(request, max(asked.wait, wait), attempt, line)
    if isinstance(claimed, Idle):
        return nothing(claimed)
    return Answer(claimed[0] if asked.limit is None else {"jobs": claimed})


def _require_types(log: Log, access: Access, asked: ClaimJob) -> None:
    if access.may_everywhere(WORK):
        return
    if asked.types is None:
        require(access, WORK, f"{PREFIX}{check_queue(asked.queue)}:")
        return
    for stream in log.job_claims.wanted(asked.types, asked.queue).possible():
        require(access, WORK, stream)


@router.post("/{job_id}/heartbeat", **spec("work", {"id": ID, "outcome": "extended"}, "lease_lost", "unknown_job"))
def heartbeat(log: TheLog, access: CanWork, job_id: str, body: Heartbeat) -> Answer:
    """Extend the lease of a job: `extended`, or `cancel` if the job should end."""
    require_job(log, access, WORK, job_id)
    said = log.heartbeat(
        job_id, _worker(access, body), token=token_of(body.token), progress=body.progress, message=body.message
    )
    return Answer({"id": job_id, "outcome": said})


@router.post(
    "/{job_id}/complete",
    **spec("work", {"id": ID, "status": "PUBLISHED"}, "lease_lost", "settle_mismatch", "unknown_job"),
)
def complete(log: TheLog, access: CanWork, job_id: str, body: Complete) -> Answer:
    """Finish a job and keep its result; the same request again is harmless."""
    require_job(log, access, WORK, job_id)
    log.complete_job(job_id, _worker(access, body), token=token_of(body.token), result=body.result)
    return Answer({"id": job_id, "status": "PUBLISHED"})


@router.post(
    "/{job_id}/fail",
    **spec("work", {"id": ID, "status": "PENDING"}, "lease_lost", "settle_mismatch", "unknown_job"),
)
def fail(log: TheLog, access: CanWork, job_id: str, body: Fail) -> Answer:
    """Report a failure: the job is retried after its backoff, or `retry_in` seconds, or it is DEAD."""
    require_job(log, access, WORK, job_id)
    error: Any = None if body.error is None else error_of(body.error)
    if body.permanent:
        dead = Permanent("failed" if error is None else str(error))
        dead.code = getattr(error, "code", None)  # type: ignore[attr-defined]  # looked for on every error
        error = dead
    log.fail_job(job_id, _worker(access, body), token=token_of(body.token), error=error, retry_in=body.retry_in)
    return Answer({"id": job_id, "status": log.job(job_id).status})


def _worker(access: Access, body: OfWorker) -> str:
    return access.name if body.worker is None else body.worker

"""Schedules: jobs that are submitted by the clock."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import ConfigDict, Field
from starlette.responses import Response

from penstock.core.access import ADMIN, OPERATE, READ, Access
from penstock.core.job import QUEUE, JobName, check_job_name
from penstock.errors import UnknownSchedule
from penstock.http.answers import Answer, job_document, schedule_document
from penstock.http.bodies import Body, StrictRoute, Whole
from penstock.http.given import CanAdmin, CanOperate, CanRead, Shown, TheLog, require
from penstock.http.jobs import JOB
from penstock.http.shapes import an_object, many, ref
from penstock.http.spec import spec
from penstock.log.jobs.schedules import Schedule
from penstock.log.log import Log

router = APIRouter(prefix="/v1/schedules", tags=["schedules"], route_class=StrictRoute)
SCHEDULE = {
    "name": "nightly",
    "cron": "0 3 * * *",
    "tz": "Europe/Berlin",
    "type": "report",
    "queue": "default",
    "priority": 0,
    "max_attempts": None,
    "suspended": False,
    "created_at": "2026-07-01T12:00:00+00:00",
    "next_at": "2026-07-02T01:00:00+00:00",
    "last_at": None,
    "last_job": None,
    "payload": {},
}


class NewSchedule(Body):
    """When to submit which job."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"name": "nightly", "cron": "0 3 * * *", "type": "report", "tz": "Europe/Berlin"}]
        }
    )

    name: str
    cron: str = Field(description="Five fields.")
    type: str
    payload: Any = None
    tz: str = "UTC"
    queue: str = QUEUE
    priority: Whole = 0
    max_attempts: Whole | None = None


def _stream(one: Schedule) -> str:
    return JobName(one.queue, one.priority, one.type).stream


def _require_one(log: Log, access: Access, scope: str, name: str) -> Schedule:
    found = next((one for one in log.schedules() if one.name == name), None)
    if found is None:
        raise UnknownSchedule(f"There is no schedule {name[:140]!r}.")
    require(access, scope, _stream(found))
    return found


@router.get("", **spec("read", {"schedules": [SCHEDULE]}, shape=an_object(schedules=many("Schedule")), reads=True))
def schedules(log: TheLog, access: CanRead, shown: Shown) -> Answer:
    """List the schedules."""
    found = [one for one in log.schedules() if access.may(READ, _stream(one))]
    return Answer({"schedules": [schedule_document(one, shown, _stream(one)) for one in found]})


@router.post(
    "",
    **spec("admin", SCHEDULE, "invalid_schedule", "invalid_job", "invalid_payload", shape=ref("Schedule"), status=201),
)
def schedule(log: TheLog, access: CanAdmin, shown: Shown, body: NewSchedule) -> Answer:
    """Create a schedule; the same name again changes it."""
    require(access, ADMIN, check_job_name(body.type, body.queue, body.priority).stream)
    known = next((one for one in log.schedules() if one.name == body.name), None)
    if known is not None:
        require(access, ADMIN, _stream(known))
    made = log.schedule(**body.given())
    return Answer(schedule_document(made, shown, _stream(made)), status_code=201)


@router.post("/{name}/run", **spec("operate", JOB, "unknown_schedule", shape=ref("Job"), status=201))
def run(log: TheLog, access: CanOperate, shown: Shown, name: str) -> Answer:
    """Submit a run now; the next ones come as planned."""
    _require_one(log, access, OPERATE, name)
    return Answer(job_document(log.run_schedule(name, by=access.name), shown), status_code=201)


@router.post(
    "/{name}/suspend", **spec("operate", SCHEDULE | {"suspended": True}, "unknown_schedule", shape=ref("Schedule"))
)
def suspend(log: TheLog, access: CanOperate, shown: Shown, name: str) -> Answer:
    """Submit no runs until it is resumed."""
    _require_one(log, access, OPERATE, name)
    changed = log.suspend_schedule(name, by=access.name)
    return Answer(schedule_document(changed, shown, _stream(changed)))


@router.post("/{name}/resume", **spec("operate", SCHEDULE, "unknown_schedule", shape=ref("Schedule")))
def resume(log: TheLog, access: CanOperate, shown: Shown, name: str) -> Answer:
    """Go on; what was missed while it was suspended is not made up for."""
    _require_one(log, access, OPERATE, name)
    changed = log.resume_schedule(name, by=access.name)
    return Answer(schedule_document(changed, shown, _stream(changed)))


@router.delete("/{name}", **spec("admin", None, "unknown_schedule", status=204, reads=True))
def delete(log: TheLog, access: CanAdmin, name: str) -> Response:
    """Delete a schedule; jobs that were submitted stay."""
    _require_one(log, access, ADMIN, name)
    log.delete_schedule(name, by=access.name)
    return Response(status_code=204)

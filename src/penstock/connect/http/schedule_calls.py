"""The requests of schedules."""

from __future__ import annotations

from typing import Any

from penstock.connect.http import decode
from penstock.connect.http.call import Call, given, path_of
from penstock.core.job import QUEUE, Job
from penstock.log.jobs.schedules import Schedule


def schedule(
    name: str,
    cron: str,
    *,
    type: str,
    payload: Any = None,
    tz: str = "UTC",
    queue: str = QUEUE,
    priority: int = 0,
    max_attempts: int | None = None,
) -> Call[Schedule]:
    """Submit a job by the clock; the same name again changes it."""
    job = given(type=type, payload=payload, queue=queue, priority=priority, max_attempts=max_attempts)
    return Call("POST", path_of("schedules"), decode.schedule_of, {"name": name, "cron": cron, "tz": tz, **job})


def schedules() -> Call[list[Schedule]]:
    """Return the schedules that the token may see."""
    return Call("GET", path_of("schedules"), lambda found: [decode.schedule_of(one) for one in found["schedules"]])


def suspend_schedule(name: str) -> Call[Schedule]:
    """Submit no runs until `resume_schedule`."""
    return Call("POST", path_of("schedules", name, "suspend"), decode.schedule_of)


def resume_schedule(name: str) -> Call[Schedule]:
    """Go on; what was missed is not made up for."""
    return Call("POST", path_of("schedules", name, "resume"), decode.schedule_of)


def run_schedule(name: str) -> Call[Job]:
    """Submit a run now."""
    return Call("POST", path_of("schedules", name, "run"), decode.job_of)


def delete_schedule(name: str) -> Call[None]:
    """Delete a schedule; jobs that were submitted stay."""
    return Call("DELETE", path_of("schedules", name), lambda found: None)

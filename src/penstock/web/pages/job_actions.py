"""What can be done to jobs, schedules and workers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import orjson

from penstock.core.access import APPEND, OPERATE
from penstock.core.delivery import State
from penstock.core.event import parse_event_id
from penstock.core.job import CANCELLED, GROUP, JobName, check_job_name
from penstock.errors import Forbidden, InvalidInput, UnknownJob, UnknownRun, UnknownSchedule
from penstock.log.jobs.schedules import Schedule
from penstock.log.runs import RunInfo
from penstock.web.actions import Action, Ask, Done, Field, Plan
from penstock.web.pages.jobs import stream_of
from penstock.web.view import moment_of
from penstock.web.words import short

# --- submit -----------------------------------------------------------------------------------------------------------


def _may_submit(ask: Ask) -> None:
    if not ask.text("type"):
        if not ask.view.access.may_somewhere(APPEND):
            raise Forbidden(f"{ask.view.access.name!r} does not have the scope {APPEND!r}.")
        return
    ask.view.require(APPEND, _name(ask).stream)


def _name(ask: Ask) -> JobName:
    return check_job_name(ask.text("type"), ask.text("queue") or "default", ask.whole("priority", 0))


def _payload(ask: Ask) -> Any:
    """Return the payload as it was written, to the last digit."""
    text = ask.values.get("payload", "").strip() or "{}"
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"The payload is not JSON: {short(error, 120)}.") from error
    return orjson.Fragment(text.encode())


def _plan_submit(ask: Ask) -> Plan:
    name, due = _name(ask), moment_of(ask.text("at"), "At")
    _payload(ask)
    when = "as soon as a worker is free" if due is None else f"not before {due:%Y-%m-%d %H:%M:%S} UTC"
    return Plan(f"One job of the type {name.type} is stored in the queue {name.queue}; it runs {when}.", 1)


def _submit(ask: Ask) -> Done:
    name = _name(ask)
    job = ask.view.log.submit(
        name.type,
        _payload(ask),
        queue=name.queue,
        priority=name.priority,
        available_at=moment_of(ask.text("at"), "At"),
    )
    return Done(to=("/e", str(job.id)))


# --- jobs -------------------------------------------------------------------------------------------------------------


def _plan_cancel(ask: Ask) -> Plan:
    job = ask.view.log.job(parse_event_id(ask.text("event_id")))
    if job.stream != ask.stream:
        raise UnknownJob(f"There is no job {job.id} on {ask.stream!r}.")
    if job.status not in (State.PENDING, State.CLAIMED):
        return Plan(f"It is {job.status}: there is nothing to cancel.", possible=False)
    if job.status is State.CLAIMED:
        return Plan(f"{job.worker} is told with its next heartbeat; if it finishes first, it stays finished.", 1)
    return Plan("It waits, and is given up at once: DEAD with the reason cancelled.", 1)


def _cancel(ask: Ask) -> Done:
    known, log = parse_event_id(ask.text("event_id")), ask.view.log
    if log.groups(ask.stream):
        log.cancel(ask.stream, GROUP, event_ids=[known], reason=ask.reason or CANCELLED, by=ask.by)
    else:  # nobody has claimed a job of this type yet
        log.cancel_job(known, by=ask.by)
    return Done(1)


# --- schedules --------------------------------------------------------------------------------------------------------


def _schedule(ask: Ask) -> Schedule:
    """Return the schedule, if its jobs are in the stream that rights were asked for."""
    name = ask.text("name")
    found = next((one for one in ask.view.log.schedules() if one.name == name), None)
    if found is None or stream_of(found) != ask.stream:
        raise UnknownSchedule(f"There is no schedule {name[:140]!r}.")
    return found


def _plan_run(ask: Ask) -> Plan:
    one = _schedule(ask)
    return Plan(f"A job of the type {one.type} is submitted now; the next runs come as planned.", 1, lines=(one.name,))


def _run(ask: Ask) -> Done:
    job = ask.view.log.run_schedule(_schedule(ask).name, by=ask.by)
    return Done(to=("/e", str(job.id)))


def _plan_suspend(ask: Ask) -> Plan:
    one = _schedule(ask)
    if one.suspended:
        return Plan("It is suspended already.", possible=False)
    return Plan("No runs are submitted until it is resumed. Jobs that were submitted stay.", lines=(one.name, one.cron))


def _suspend(ask: Ask) -> Done:
    ask.view.log.suspend_schedule(_schedule(ask).name, by=ask.by)
    return Done()


def _plan_resume(ask: Ask) -> Plan:
    one = _schedule(ask)
    if not one.suspended:
        return Plan("It is not suspended.", possible=False)
    return Plan("It goes on; what was missed is not made up for.", lines=(one.name, one.cron))


def _resume(ask: Ask) -> Done:
    ask.view.log.resume_schedule(_schedule(ask).name, by=ask.by)
    return Done()


# --- workers ----------------------------------------------------------------------------------------------------------


def _of(ask: Ask) -> RunInfo:
    number = ask.whole("run")
    found = next((one for one in ask.view.log.runs() if one.id == number), None)
    if found is None:
        raise UnknownRun(f"There is no run {number} that has not ended.")
    return found


def _where(one: RunInfo) -> tuple[str, ...]:
    return (f"{one.name} on {one.host}, pid {one.pid}, {one.engine} {one.version}",)


def _plan_quiet(ask: Ask) -> Plan:
    return Plan("It finishes what it has claimed, and claims nothing new until it is resumed.", lines=_where(_of(ask)))


def _quiet(ask: Ask) -> Done:
    ask.view.log.quiet_run(_of(ask).id, by=ask.by)
    return Done()


def _plan_wake(ask: Ask) -> Plan:
    return Plan("It claims work again.", lines=_where(_of(ask)))


def _wake(ask: Ask) -> Done:
    ask.view.log.resume_run(_of(ask).id, by=ask.by)
    return Done()


def _plan_stop(ask: Ask) -> Plan:
    one = _of(ask)
    if one.state == "lost":
        return Plan("It is lost, and cannot hear. Its work is taken back when its leases end.", possible=False)
    return Plan("It stops gracefully within seconds; what it has not begun goes to others.", lines=_where(one))


def _stop(ask: Ask) -> Done:
    ask.view.log.stop_run(_of(ask).id, by=ask.by)
    return Done()


_SUBMIT = (
    Field("type", "Type", required=True, hint="such as email:send"),
    Field("payload", "Payload", "area", value="{}", hint="JSON, stored exactly like this"),
    Field("queue", "Queue", "text", value="default"),
    Field("priority", "Priority", "number", value="0", hint="9 is first"),
    Field("at", "Not before", hint="empty: at once; or a time such as 2026-07-01T12:00Z"),
)


def _action(
    name: str, title: str, verb: str, done: str, plan: Callable[[Ask], Plan], run: Callable[[Ask], Done]
) -> Action:
    """Return an action on a schedule or, without a stream, on a run, which asks for no reason."""
    of = "log" if name.endswith("-run") else "stream"
    return Action(name, title, verb, done, plan, run, OPERATE, reason="none", of=of, danger=name == "stop-run")


ACTIONS = (
    Action(
        *("submit-job", "Submit a job", "Submit", "The job is stored.", _plan_submit, _submit),
        scope=APPEND,
        fields=_SUBMIT,
        reason="none",
        of="log",
        rights=_may_submit,
    ),
    Action(
        *("cancel-job", "Cancel a job", "Cancel the job", "It is cancelled.", _plan_cancel, _cancel),
        of="stream",
        danger=True,
    ),
    _action("run-schedule", "Run a schedule now", "Run now", "The job is submitted.", _plan_run, _run),
    _action("suspend-schedule", "Suspend a schedule", "Suspend", "It is suspended.", _plan_suspend, _suspend),
    _action("resume-schedule", "Resume a schedule", "Resume", "It goes on.", _plan_resume, _resume),
    _action("quiet-run", "Quiet a worker", "Quiet", "It claims nothing new.", _plan_quiet, _quiet),
    _action("wake-run", "Resume a worker", "Resume", "It claims work again.", _plan_wake, _wake),
    _action("stop-run", "Stop a worker", "Stop", "It stops.", _plan_stop, _stop),
)

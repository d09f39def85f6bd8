"""`penstock submit`, `jobs`, `cancel` and `worker`."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from penstock.cli import output
from penstock.cli.append import read_payload
from penstock.cli.arguments import (
    After,
    By,
    DryRun,
    Headers,
    Ids,
    Limit,
    MetricsHost,
    MetricsPort,
    Traces,
    Yes,
    parse_headers,
)
from penstock.cli.command import LOOK, OPERATE, WRITE, command, root
from penstock.cli.completion import fixed, groups_everywhere, streams
from penstock.cli.failures import FAILED, Usage
from penstock.cli.operate import Reason, cancel_events
from penstock.cli.session import Session
from penstock.cli.times import TIME_HELP, parse_optional
from penstock.core.job import QUEUE, check_job_name
from penstock.core.limits import PROCESSES

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.core.job import Job

JobType = Annotated[str, typer.Argument(metavar="TYPE", help="The type, such as email:send.", show_default=False)]
Queue = Annotated[str, typer.Option("--queue", help="The queue.")]


@command(root, "submit", panel=WRITE, example='penstock submit email:send --payload \'{"to": "ada"}\'')
def submit(
    session: Session,
    *,
    job_type: JobType,
    payload: Annotated[
        str | None, typer.Option("--payload", metavar="JSON|@FILE|-", help="The payload, a file, or standard input.")
    ] = None,
    queue: Queue = QUEUE,
    priority: Annotated[int, typer.Option("--priority", metavar="0-9", help="9 is claimed first.")] = 0,
    max_attempts: Annotated[
        int | None, typer.Option("--max-attempts", metavar="N", help="Instead of what the type says.")
    ] = None,
    unique: Annotated[
        str | None, typer.Option("--unique", metavar="KEY", help="Only if no unfinished job of the type has this key.")
    ] = None,
    at: Annotated[str | None, typer.Option("--at", metavar="TIME", help=f"Not before: {TIME_HELP}.")] = None,
    header: Headers = None,
    job_id: Annotated[str | None, typer.Option("--id", help="A uuid or ULID; the same id is stored once.")] = None,
) -> None:
    """Submit a job for the workers of its type."""
    check_job_name(job_type, queue, priority)  # before the log is opened, so that a mistake does not create one
    given = read_payload(payload)
    with session.open(create=True) as log:
        job = log.submit(
            job_type,
            given,
            queue=queue,
            priority=priority,
            max_attempts=max_attempts,
            unique=unique,
            available_at=parse_optional(at, "--at"),
            headers=parse_headers(header),
            event_id=job_id,
        )
    known = " (was there already)" if job.duplicate else ""
    session.answer({"id": job.id, "type": job.type, "duplicate": job.duplicate}, lambda: f"{job.type} {job.id}{known}")


@command(root, "jobs", panel=LOOK, example="penstock jobs --state DEAD")
def jobs(
    session: Session,
    *,
    job_id: Annotated[str | None, typer.Argument(metavar="ID", help="One job.", show_default=False)] = None,
    queue: Annotated[str | None, typer.Option("--queue", help="Only of this queue.")] = None,
    job_type: Annotated[str | None, typer.Option("--type", help="Only of this type.")] = None,
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            help="PENDING, CLAIMED, PUBLISHED or DEAD.",
            autocompletion=fixed("PENDING", "CLAIMED", "PUBLISHED", "DEAD"),
        ),
    ] = None,
    limit: Limit = 20,
    after: After = 0,
) -> None:
    """List jobs, or show one."""
    with session.open() as log:
        if job_id is not None:
            job = log.job(job_id)
            session.answer(_document(job), lambda: _in_full(job))
            return
        found = log.jobs(queue=queue, type=job_type, state=state, after=after, limit=limit)
    session.answer({"jobs": [_document(one) for one in found]}, lambda: _table(found))


@command(root, "cancel", panel=OPERATE, example="penstock cancel orders fraud --id 42 --reason 'a loop' --yes")
def cancel(
    session: Session,
    *,
    job_id: Annotated[
        str,
        typer.Argument(
            metavar="JOB|STREAM", help="The id of a job, or a stream.", show_default=False, autocompletion=streams
        ),
    ],
    group: Annotated[
        str | None,
        typer.Argument(
            metavar="[GROUP]",
            help="The group, if events are named.",
            show_default=False,
            autocompletion=groups_everywhere,
        ),
    ] = None,
    ids: Ids = None,
    reason: Reason = "cancelled",
    dry_run: DryRun = False,
    yes: Yes = False,
    by: By = None,
) -> None:
    """Cancel a job, or deliveries of a group: what waits is DEAD at once, what runs is told with its next heartbeat."""
    if group is not None:
        cancel_events(session, job_id, group, ids, reason, dry_run=dry_run, yes=yes, by=by)
        return
    if ids or dry_run or reason != "cancelled":
        raise Usage("--id, --reason and --dry-run belong to STREAM GROUP; a job is cancelled by its id alone.")
    with session.open() as log:
        job = log.cancel_job(job_id, by=by)
    what = {"CLAIMED": "is told with its next heartbeat", "DEAD": f"is DEAD ({job.reason or job.error_code})"}
    session.answer(_document(job), lambda: f"{job.type} {job.id} {what.get(job.status, f'is {job.status}')}")


@command(root, "worker", panel=OPERATE, example="penstock worker app.py --concurrency 8")
def worker(
    session: Session,
    *,
    app: Annotated[str, typer.Argument(metavar="APP", help="file.py, file.py:name or module:name.")],
    types: Annotated[
        list[str] | None,
        typer.Option("--types", metavar="TYPE", help="Only this type; repeat it for more.", show_default=False),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option("--concurrency", metavar="N", min=1, help="Jobs of a type at once; else what the app declares."),
    ] = None,
    until_drained: Annotated[
        bool, typer.Option("--until-drained", help="End when nothing is left to do.", show_default=False)
    ] = False,
    processes: Annotated[
        int, typer.Option("--processes", metavar="N", min=1, max=PROCESSES, help="Work in so many processes.")
    ] = 1,
    traces: Traces = False,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = None,
) -> None:
    """Do the jobs of an app until Ctrl-C or SIGTERM; a second one exits at once."""
    from penstock.cli.run import load_app, own_output, run_document, shown
    from penstock.cli.run_lines import warnings_shown

    with own_output(session), warnings_shown(session.json_lines):
        declared = load_app(session, app, traces, metrics_port, metrics_host)
        chosen = declared.chosen_jobs(types, concurrency)
        with shown(session, declared, chosen, "local"):
            outcome = declared.work(
                types=types, concurrency=concurrency, until_drained=until_drained, processes=processes
            )
    if session.as_json:
        output.write_json(run_document(outcome))
    else:
        output.console().print(output.plain(outcome.line()), soft_wrap=True)
    if until_drained and outcome.paused:
        raise typer.Exit(FAILED)


def _document(job: Job) -> dict[str, Any]:
    names = (
        "id type queue priority status attempts failures max_attempts worker claimed_at heartbeat_at available_at "
        "created_at finished_at progress message result error error_code reason"
    )
    document = {name: getattr(job, name) for name in names.split()}
    try:
        return document | {"payload": job.json()}
    except ValueError:
        return document | {"payload_base64": base64.b64encode(job.payload).decode()}


def _table(found: list[Job]) -> RenderableType:
    if not found:
        return "No job matches."
    rows = (
        (
            output.cell(one.type, 40),
            output.cell(one.queue, 20),
            str(one.priority),
            output.state_text(one.status),
            f"{one.attempts}/{one.failures}",
            output.age(one.finished_at or one.claimed_at or one.available_at),
            str(one.id),
            output.cell(one.error or one.message or one.worker or "", 60),
        )
        for one in found
    )
    return output.table(("type…", "queue…?", ">prio?", "state", ">tries/failed?", "when", "id", "note…?"), rows)


def _in_full(job: Job) -> RenderableType:
    document = {name: value for name, value in _document(job).items() if value is not None}
    width = max(map(len, document))
    return "\n".join(f"{name.rjust(width)}  {_text(value)}" for name, value in document.items())


def _text(value: Any) -> str:
    return output.plain(orjson.dumps(value).decode() if isinstance(value, dict | list) else value)

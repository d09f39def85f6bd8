"""`penstock job-type …`: how long jobs of a type stay, and how many there were."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import output
from penstock.cli.arguments import By
from penstock.cli.command import command, job_type
from penstock.cli.jobs import JobType, Queue
from penstock.cli.session import Session
from penstock.cli.times import KEEP_HELP, keep_text, parse_keep
from penstock.core.job import QUEUE, check_job_name, check_keep_dead, check_keep_finished

if TYPE_CHECKING:
    from rich.console import RenderableType


@command(job_type, "list", example="penstock job-type list")
def list_types(session: Session) -> None:
    """List job types, how long their jobs stay, and how many have finished or died."""
    with session.open() as log:
        kept, counted = log.job_types(), log.stats().job_types
    known: dict[tuple[str, str], dict[str, Any]] = {(one.type, one.queue): asdict(one) for one in counted}
    nothing = {"pending": 0, "claimed": 0, "completed_total": 0, "exhausted_total": 0}
    for one in kept:
        known.setdefault((one.type, one.queue), {"type": one.type, "queue": one.queue, **nothing})
        known[one.type, one.queue] |= {"keep_finished": one.keep_finished, "keep_dead": one.keep_dead}
    found = [{"keep_finished": None, "keep_dead": None} | known[key] for key in sorted(known)]
    session.answer({"job_types": found}, lambda: _table(found))


@command(job_type, "set", example="penstock job-type set email:send --keep-finished 7d --keep-dead forever")
def set_type(
    session: Session,
    *,
    type_: JobType,
    queue: Queue = QUEUE,
    keep_finished: Annotated[
        str | None, typer.Option("--keep-finished", metavar="TIME", help=f"{KEEP_HELP}; 0 is not at all.")
    ] = None,
    keep_dead: Annotated[str | None, typer.Option("--keep-dead", metavar="TIME", help=f"{KEEP_HELP}.")] = None,
    by: By = None,
) -> None:
    """Change how long jobs of a type stay. An app that declares the type says it again when it starts."""
    name = check_job_name(type_, queue, 0)
    finished, dead = parse_keep(keep_finished, "--keep-finished"), parse_keep(keep_dead, "--keep-dead")
    check_keep_finished(finished)  # before the log is opened
    check_keep_dead(dead)
    with session.open() as log:
        changed = log.set_job_type(name.type, queue=name.queue, keep_finished=finished, keep_dead=dead, by=by)
    stays = f"finished jobs stay {keep_text(changed.keep_finished)}, dead ones {keep_text(changed.keep_dead)}"
    session.answer(asdict(changed), lambda: f"{name.type}: {stays}")


def _table(found: list[dict[str, Any]]) -> RenderableType:
    if not found:
        return "There are no job types."
    rows = (
        (
            output.cell(one["type"]),
            output.cell(one["queue"]),
            f"{one['pending']:,}",
            f"{one['claimed']:,}",
            f"{one['completed_total']:,}",
            f"{one['exhausted_total']:,}",
            keep_text(one["keep_finished"]),
            keep_text(one["keep_dead"]),
        )
        for one in found
    )
    columns = ("type…", "queue…?", ">pending", ">claimed", ">completed", ">exhausted", "keep finished?", "keep dead?")
    return output.table(columns, rows)

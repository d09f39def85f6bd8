"""`penstock schedule …`: jobs that are submitted by the clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import output
from penstock.cli.arguments import By, Yes
from penstock.cli.command import command, schedule
from penstock.cli.session import Session

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.log.jobs.schedules import Schedule

_NEXT_RUNS = 5
Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule.", show_default=False)]


@command(schedule, "list", example="penstock schedule list")
def list_schedules(session: Session) -> None:
    """List schedules and their next runs."""
    with session.open() as log:
        found = log.schedules()
    session.answer({"schedules": [_document(one) for one in found]}, lambda: _table(found))


@command(schedule, "run", example="penstock schedule run nightly")
def run(session: Session, *, name: Name, by: By = None) -> None:
    """Submit a run now; the next ones come as planned."""
    with session.open() as log:
        job = log.run_schedule(name, by=by)
    session.answer({"schedule": name, "job": job.id}, lambda: f"{name}: {job.type} {job.id}")


@command(schedule, "suspend", example="penstock schedule suspend nightly")
def suspend(session: Session, *, name: Name, by: By = None) -> None:
    """Submit no runs until it is resumed."""
    with session.open() as log:
        changed = log.suspend_schedule(name, by=by)
    session.answer(_document(changed), lambda: f"{name} is suspended")


@command(schedule, "resume", example="penstock schedule resume nightly")
def resume(session: Session, *, name: Name, by: By = None) -> None:
    """Go on; what was missed meanwhile is not made up for."""
    with session.open() as log:
        changed = log.resume_schedule(name, by=by)
    session.answer(_document(changed), lambda: f"{name} runs next {output.age(changed.next_at)}")


@command(schedule, "delete", example="penstock schedule delete nightly")
def delete(session: Session, *, name: Name, yes: Yes = False, by: By = None) -> None:
    """Delete a schedule; its jobs stay."""
    with session.open() as log:
        session.confirm_if_watched(yes, lambda: f"Delete the schedule {name}?")
        log.delete_schedule(name, by=by)
    session.answer({"schedule": name, "deleted": True}, lambda: f"{name} is deleted")


def _document(one: Schedule) -> dict[str, Any]:
    names = "name cron tz type queue priority payload max_attempts suspended created_at next_at last_at last_job"
    return {name: getattr(one, name) for name in names.split()} | {"next_runs": one.next_runs(_NEXT_RUNS)}


def _table(found: list[Schedule]) -> RenderableType:
    if not found:
        return "There are no schedules."
    rows = (
        (
            output.cell(one.name, 40),
            output.cell(one.cron, 30),
            output.cell(one.tz, 30),
            output.cell(one.type, 40),
            "suspended" if one.suspended else output.age(one.next_at),
            output.age(one.last_at),
        )
        for one in found
    )
    return output.table(("name…", "cron", "tz…?", "type…?", "next", "last?"), rows)

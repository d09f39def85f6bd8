"""`penstock runs` and `penstock stop`: who is at work on a log, and how to tell them to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import output
from penstock.cli.arguments import By
from penstock.cli.command import LOOK, OPERATE, command, root
from penstock.cli.failures import Usage
from penstock.cli.session import Session

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.log.runs import RunInfo


@command(root, "runs", panel=LOOK, example="penstock runs")
def runs(
    session: Session,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Runs that are over, too.", show_default=False)] = False,
) -> None:
    """List the runs of engines that work on this log, with their heartbeat and what is wanted of them."""
    with session.open() as log:
        found = log.runs(all=everything)
    session.answer({"runs": [_document(one) for one in found]}, lambda: _table(found))


@command(root, "stop", panel=OPERATE, example="penstock stop 12")
def stop(
    session: Session,
    *,
    run: Annotated[
        int | None, typer.Argument(metavar="RUN", help="The number of the run; not needed if there is one only.")
    ] = None,
    finish: Annotated[
        bool, typer.Option("--finish", help="Only claim nothing new; the run stays.", show_default=False)
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Let it claim again.", show_default=False)] = False,
    by: By = None,
) -> None:
    """Stop a run gracefully, wherever it is: it hears of it with its next heartbeat."""
    if finish and resume:
        raise Usage("--finish and --resume do not go together.")
    with session.open() as log:
        number = _only(log.runs()) if run is None else run
        do = log.quiet_run if finish else log.resume_run if resume else log.stop_run
        told = do(number, by=by)
    verb = "is over already" if told.state == "ended" else f"is told: {told.wanted}"
    session.answer(_document(told), lambda: f"run {told.id} ({told.name}) {verb}")


def _only(found: list[RunInfo]) -> int:
    running = [one for one in found if one.state == "running" and one.engine != "serve"]  # a service is stopped by name
    if len(running) == 1:
        return running[0].id
    if not running:
        raise Usage("Nobody is at work on this log.")
    raise Usage(f"{len(running)} runs are at work: name one of {', '.join(str(one.id) for one in running)}.")


def _document(one: RunInfo) -> dict[str, Any]:
    return {
        "id": one.id,
        "name": one.name,
        "app": one.app,
        "engine": one.engine,
        "version": one.version,
        "host": one.host,
        "pid": one.pid,
        "groups": list(one.groups),
        "started_at": one.started_at,
        "heartbeat_at": one.heartbeat_at,
        "wanted": one.wanted,
        "ended_at": one.ended_at,
        "outcome": one.outcome,
        "state": one.state,
    }


def _table(found: list[RunInfo]) -> RenderableType:
    if not found:
        return "Nobody is at work on this log."
    rows = (
        (
            str(one.id),
            output.cell(one.name),
            output.cell(one.app or output.NONE),
            one.engine,
            output.cell(", ".join(one.groups), 40),
            output.age(one.started_at),
            output.age(one.heartbeat_at),
            one.state if one.wanted == "run" or one.state == "ended" else f"{one.state}, to {one.wanted}",
            output.cell(one.outcome or ""),
        )
        for one in found
    )
    columns = (">run", "name…?", "app…", "engine", "groups…", ">started?", ">heartbeat?", "state", "outcome…")
    return output.table(columns, rows)

"""`penstock operation …`, and what redrive, replay and purge do when they are stored operations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import output
from penstock.cli.arguments import By, Limit
from penstock.cli.command import command, operation
from penstock.cli.completion import fixed
from penstock.cli.failures import FAILED
from penstock.cli.session import Session
from penstock.core.operation import STATES, OperationState

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.log.log import Log
    from penstock.log.operations.operation import Operation
    from penstock.log.operations.plan import Plan
    from penstock.log.operations.record import OperationInfo

Number = Annotated[int, typer.Argument(metavar="N", min=1, help="The operation.", show_default=False)]
Canary = Annotated[int | None, typer.Option("--canary", metavar="N", min=1, help="Move so many first, and wait.")]
Rate = Annotated[float | None, typer.Option("--rate", metavar="R", help="So many a second at most.")]
StopOnReturn = Annotated[
    int | None,
    typer.Option("--stop-on-return", metavar="N", min=1, help="Stop when so many are DEAD again with their error."),
]
Detach = Annotated[bool, typer.Option("--detach", help="Let engines or `serve` run it.", show_default=False)]
Why = Annotated[str | None, typer.Option("--reason", help="Why; the operation and the audit keep it.")]


@dataclass(frozen=True, slots=True)
class Care:
    """How carefully many are moved; with any of these they are moved by a stored operation."""

    canary: int | None = None
    rate: float | None = None
    stop_on_return: int | None = None
    detach: bool = False
    reason: str | None = None

    @property
    def wanted(self) -> bool:
        """Whether somebody asked for a stored operation."""
        return self != Care(reason=self.reason)


def move_many(
    session: Session,
    log: Log,
    verb: str,
    where: tuple[str, str],
    which: dict[str, Any],
    care: Care,
    *,
    dry_run: bool,
    yes: bool,
    by: str | None,
) -> None:
    """Plan, ask, start, and run it here unless it is detached. `where` is the stream and the group."""
    stream, group = where
    planned = log.operation(
        verb,
        stream,
        group,
        canary=care.canary,
        rate_per_second=care.rate,
        stop_on_return=care.stop_on_return,
        reason=care.reason,
        by=by,
        **which,
    )
    plan = planned.plan()
    if dry_run:
        document = {"kind": verb, "stream": stream, "group": group, "dry_run": True, **asdict(plan)}
        session.answer(document, lambda: f"{verb.capitalize()} of {group} on {stream}: {_plan_line(plan)}")
        return
    session.confirm(yes, lambda: f"{verb.capitalize()} {_plan_line(plan)} of {group} on {stream}?")
    started = planned.start(plan)
    if care.detach:
        session.answer(_document(started.info), lambda: f"Operation {started.id} is started.")
        return
    _run(session, started)


def _plan_line(plan: Plan) -> str:
    more = "" if plan.exact else " or more"
    upto = (
        f"dead at or before {plan.cutoff.isoformat()}"
        if isinstance(plan.cutoff, datetime)
        else f"up to offset {plan.cutoff:,}"
    )
    halted = f", {plan.halted_keys_count:,} keys stay halted" if plan.halted_keys_count else ""
    return f"{plan.count:,}{more} deliveries {upto}{halted}"


def _run(session: Session, started: Operation) -> None:
    """Run it with a progress bar; an interrupt pauses it."""
    try:
        with _bar(session, started) as seen:
            info = started.run(seen)
    except KeyboardInterrupt:
        started.pause()
        output.error_console().print(f"Operation {started.id} is paused: see `penstock operation run`.")
        raise
    session.answer(_document(info), lambda: _line(info))
    if info.state is not OperationState.DONE:
        raise typer.Exit(FAILED)


@contextmanager
def _bar(session: Session, started: Operation) -> Iterator[Any]:
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("operation {task.description}"), BarColumn(), TextColumn("{task.fields[words]}"))
    shown = session.progress_wanted()
    with Progress(*columns, console=output.error_console(), transient=True, disable=not shown) as progress:
        first = started.info
        task = progress.add_task(str(started.id), total=max(1, first.planned), words=_words(first))
        yield lambda info: progress.update(task, completed=info.moved, words=_words(info))


def _words(info: OperationInfo) -> str:
    canary = f"canary {info.canaries_ended}/{info.canaries_moved} · " if info.canaries_moved else ""
    return f"{canary}{info.moved:,}/{info.planned:,} · {info.returned:,} back"


def _line(info: OperationInfo) -> str:
    why = info.stop_reason or info.waits_for
    return f"Operation {info.id} ({info.kind}) is {info.state}: {_words(info)}" + (f". {why}" if why else "")


@command(operation, "list", example="penstock operation list --state running")
def list_operations(
    session: Session,
    *,
    state: Annotated[
        str | None,
        typer.Option("--state", help="Only in this state.", autocompletion=fixed(*STATES)),
    ] = None,
    limit: Limit = 50,
) -> None:
    """List operations, the newest first."""
    with session.open() as log:
        found = log.operations(state=state, limit=limit)
    session.answer({"operations": [_document(one) for one in found]}, lambda: _table(found))


@command(operation, "show", example="penstock operation show 41")
def show(session: Session, *, number: Number) -> None:
    """Show what an operation moves, how far it is, and why it waits or stopped."""
    with session.open() as log:
        info = log.get_operation(number).info
    session.answer(_document(info), lambda: output.stacked(_line(info), output.pairs(_pairs(info))))


@command(operation, "run", example="penstock operation run 41")
def run(session: Session, *, number: Number, by: By = None) -> None:
    """Run an operation here until it ends, with a progress bar; a paused one goes on."""
    with session.open() as log:
        found = log.get_operation(number)
        if found.info.state is OperationState.PAUSED:
            found.resume(by=by)
        _run(session, found)


@command(operation, "pause", example="penstock operation pause 41")
def pause(session: Session, *, number: Number, by: By = None) -> None:
    """Move nothing more until it is resumed."""
    with session.open() as log:
        info = log.get_operation(number).pause(by=by)
    session.answer(_document(info), lambda: _line(info))


@command(operation, "resume", example="penstock operation resume 41")
def resume(session: Session, *, number: Number, by: By = None) -> None:
    """Let a paused operation go on; engines and `serve` run it."""
    with session.open() as log:
        info = log.get_operation(number).resume(by=by)
    session.answer(_document(info), lambda: _line(info))


@command(operation, "abort", example="penstock operation abort 41")
def abort(session: Session, *, number: Number, by: By = None) -> None:
    """End an operation; what it has moved stays moved."""
    with session.open() as log:
        info = log.get_operation(number).abort(by=by)
    session.answer(_document(info), lambda: _line(info))


def _document(info: OperationInfo) -> dict[str, Any]:
    return asdict(info)


def _pairs(info: OperationInfo) -> Iterator[tuple[str, RenderableType]]:
    cutoff = info.cutoff.isoformat() if isinstance(info.cutoff, datetime) else f"offset {info.cutoff:,}"
    said = ", ".join(f"{name} {value}" for name, value in info.filter.items()) or "all"
    yield "group", f"{info.group} on {info.stream}"
    yield "filter", output.cell(said, 200)
    yield "cutoff", cutoff
    for name in ("canary", "rate_per_second", "stop_on_return", "reason", "by", "held_by"):
        value = getattr(info, name)
        if value is not None:
            yield name, output.cell(value, 200)
    yield "started", output.moment_text(info.started_at)
    yield "ended", output.moment_text(info.ended_at)


def _table(found: list[OperationInfo]) -> RenderableType:
    if not found:
        return "There are no operations."
    rows = (
        (
            str(one.id),
            one.kind,
            output.cell(f"{one.stream}/{one.group}", 40),
            one.state,
            f"{one.moved:,}/{one.planned:,}",
            f"{one.returned:,}",
            output.age(one.created_at),
            output.cell(one.stop_reason or one.waits_for or "", 60),
        )
        for one in found
    )
    return output.table((">n", "kind", "group…", "state", ">moved", ">back?", "created?", "why…?"), rows)

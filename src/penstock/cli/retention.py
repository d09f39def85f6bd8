"""`penstock retention …`: how long the events of streams stay."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import output
from penstock.cli.arguments import By, Stream
from penstock.cli.command import command, retention
from penstock.cli.session import Session
from penstock.cli.times import KEEP_HELP, keep_text, parse_keep

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.log.retention.policies import Retention


@command(retention, "list", example="penstock retention list")
def listed(session: Session) -> None:
    """List how long the events of streams, and jobs by their type, stay."""
    with session.open() as log:
        found = log.retention()
    session.answer(asdict(found), lambda: _table(found))


@command(
    retention, "set", example="penstock retention set orders --keep 30d --keep-dead 90d --archive s3://lake/orders"
)
def set_policy(
    session: Session,
    *,
    stream: Stream,
    keep: Annotated[str | None, typer.Option("--keep", metavar="TIME", help=f"{KEEP_HELP} (no policy).")] = None,
    keep_dead: Annotated[
        str | None, typer.Option("--keep-dead", metavar="TIME", help=f"{KEEP_HELP}; after their death.")
    ] = None,
    archive: Annotated[
        str | None,
        typer.Option("--archive", metavar="PATH", help="Remove only what is archived there; none ends that."),
    ] = None,
    by: By = None,
) -> None:
    """Remove events by themselves once they are old and every group has finished them; what is not said stays."""
    finished, dead = parse_keep(keep, "--keep"), parse_keep(keep_dead, "--keep-dead")
    with session.open() as log:
        policy = log.set_retention(stream, keep=finished, keep_dead=dead, archive=archive, by=by)
    if policy is None:
        session.answer({"stream": stream, "keep": None}, lambda: f"{stream}: events stay forever")
        return
    only = "" if policy.archive is None else f", only what is archived in {policy.archive} leaves"
    stays = f"events stay {keep_text(policy.keep)}, dead letters {keep_text(policy.keep_dead)}{only}"
    session.answer(asdict(policy), lambda: f"{stream}: {stays}")


def _table(found: Retention) -> RenderableType:
    if not found.streams and not found.job_types:
        return "Everything stays forever; `penstock retention set` changes that."
    rows = [
        (
            output.cell(one.stream),
            keep_text(one.keep),
            keep_text(one.keep_dead),
            output.cell(one.archive or ""),
            f"{one.pruned_upto:,}",
            output.cell(one.waits_for or ""),
        )
        for one in found.streams
    ]
    rows += [
        (
            output.cell(f"job type {one.type} ({one.queue})"),
            keep_text(one.keep_finished),
            keep_text(one.keep_dead),
            "",
            "",
            "",
        )
        for one in found.job_types
    ]
    return output.table(("stream…", "keep", "keep dead", "archive…?", ">pruned up to?", "waits for…?"), rows)

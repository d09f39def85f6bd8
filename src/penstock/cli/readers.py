"""`penstock readers` and `penstock release`: streaming queries that read a group, and taking back what one holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import output
from penstock.cli.arguments import By, DryRun, Group, Stream, Yes
from penstock.cli.command import LOOK, OPERATE, command, root
from penstock.cli.session import Session

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.log.readers import Reader


@command(root, "readers", panel=LOOK, example="penstock readers orders lake")
def readers(session: Session, *, stream: Stream, group: Group) -> None:
    """List the streaming readers that hold claims of a group: how much, since when and until when."""
    with session.open() as log:
        found = log.readers(stream, group)
    session.answer({"stream": stream, "group": group, "readers": found}, lambda: _table(found))


@command(root, "release", panel=OPERATE, example="penstock release orders lake --reader 5d41402abc4b2a76 --yes")
def release(
    session: Session,
    *,
    stream: Stream,
    group: Group,
    reader: Annotated[str, typer.Option("--reader", metavar="ID", help="The reader, as `penstock readers` names it.")],
    dry_run: DryRun = False,
    yes: Yes = False,
    by: By = None,
) -> None:
    """Give back what a streaming reader holds. Its query, if it still runs, fails with claim_lost."""
    session.refuse_unasked(yes or dry_run)
    with session.open() as log:

        def question() -> str:
            count = log.release_reader(stream, group, reader, dry_run=True).count
            return f"Give {count:,} deliveries of {group} on {stream} back that the reader {reader} holds?"

        session.confirm(yes or dry_run, question)
        moved = log.release_reader(stream, group, reader, dry_run=dry_run, by=by)
    document = {"stream": stream, "group": group, "reader": reader, "count": moved.count, "dry_run": dry_run}
    would = "would come back" if dry_run else "came back"
    session.answer(document, lambda: f"{group} on {stream}: {moved.count:,} deliveries {would}")


def _table(found: list[Reader]) -> RenderableType:
    if not found:
        return "No reader holds anything."
    rows = (
        (
            output.cell(one.reader),
            f"{one.events:,}",
            output.age(one.claimed_at),
            output.age(one.expires_at),
        )
        for one in found
    )
    return output.table(("reader", ">events", "since", "until"), rows)

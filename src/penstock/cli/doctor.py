"""`penstock doctor`: print what the doctor found."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import output
from penstock.cli.arguments import Yes
from penstock.cli.command import OPERATE, command, root
from penstock.cli.failures import FAILED
from penstock.cli.session import Session

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.log.doctor import Finding

_QUESTION = "Stop the workers first: every open lease is ended, and its work is repeated. Repair now?"
_COLOURS = {"ok": "green", "note": "yellow", "problem": "bold red"}
_ORDER = ("problem", "note", "ok")


@command(root, "doctor", panel=OPERATE, example="penstock doctor --repair")
def doctor(
    session: Session,
    *,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Raise every sequence above what is stored, end every open lease, create indexes that are missing, "
            "and close runs that are lost.",
        ),
    ] = False,
    yes: Yes = False,
) -> None:
    """Check the database's settings, the schema, and whether anything stands still. Exit 1 over a problem.

    On a terminal, --repair asks first; elsewhere it is the answer.
    """
    from penstock.log.doctor import Level, repaired

    with session.open() as log:
        if repair:
            session.confirm_if_watched(yes, lambda: _QUESTION)
        done = [*repaired(log.repair())] if repair else []
        findings = [*done, *log.examine()]
    healthy = not any(one.level is Level.PROBLEM for one in findings)
    session.answer({"healthy": healthy, "findings": [asdict(one) for one in findings]}, lambda: _shown(findings))
    if not healthy:
        raise typer.Exit(FAILED)


def _shown(findings: list[Finding]) -> RenderableType:
    """The worst first; on a narrow screen the text stays in its own column."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column()
    for one in sorted(findings, key=lambda one: _ORDER.index(one.level)):
        text = Text(output.plain(one.what))
        if one.todo:
            text.append(f"\n→ {output.plain(one.todo)}", "dim")
        table.add_row(Text(one.level, _COLOURS[one.level]), Text(one.check, "bold"), text)
    return table

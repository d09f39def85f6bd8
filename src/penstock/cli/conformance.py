"""`penstock conformance`: check every clause of the implemented pages on a scratch log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import output
from penstock.cli.command import START, command, root
from penstock.cli.failures import Usage
from penstock.cli.session import Session

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.testing.clauses.run import Result


@command(root, "conformance", panel=START, example="penstock conformance --page 000")
def conformance(
    session: Session,
    *,
    page: Annotated[
        str | None, typer.Option("--page", help="Only the clauses of this page: 000 to 004.", show_default=False)
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="List only what does not hold.")] = False,
) -> None:
    """Check every clause of the pages Penstock implements, in a scratch schema (or file) beside the log."""
    results = _run(session, page)
    broken = [one for one in results if not one.holds]
    document = {
        "url": session.safe_url,
        "held": len(results) - len(broken),
        "failed": len(broken),
        "clauses": [{"id": one.id, "text": one.text, "holds": one.holds, "error": one.error} for one in results],
    }
    held = f"{len(results) - len(broken)} of {len(results)} clauses hold"
    session.answer(document, lambda: _shown(broken if failed else results, held))
    if broken:
        raise typer.Exit(1)


def _run(session: Session, page: str | None) -> list[Result]:
    # Here, because no other command needs what the checks need.
    from rich.progress import Progress

    from penstock.testing.clauses.registry import clauses
    from penstock.testing.clauses.run import run

    pages = sorted({one.id[:3] for one in clauses()})
    if page is not None and page not in pages:
        raise Usage(f"There is no page {page!r}; there are {', '.join(pages)}.")
    wanted = [one for one in clauses() if page in (None, one.id[:3])]
    with Progress(console=output.error_console(), transient=True, disable=not session.progress_wanted()) as progress:
        return list(progress.track(run(session.url, page), total=len(wanted), description="checking clauses"))


def _shown(results: list[Result], held: str) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    if not results:
        return Text(held, "green")
    table = Table.grid(padding=(0, 2))  # ids stay whole on a narrow screen; the texts wrap
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column()
    for one in results:
        mark = Text("holds", "green") if one.holds else Text("FAILS", "bold red")
        table.add_row(one.id, mark, Text(one.text if one.holds else f"{one.text}\n{output.plain(one.error)}"))
    return Group(table, Text(held, "bold"))

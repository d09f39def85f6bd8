"""The command `penstock top`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import output
from penstock.cli.command import LOOK, command, root
from penstock.cli.completion import fixed
from penstock.cli.failures import Usage
from penstock.cli.session import Session

if TYPE_CHECKING:
    from penstock.cli.top.sample import Sample

_SORTS = ("name", "lag", "rate", "dead", "oldest")


@command(root, "top", panel=LOOK, example="penstock top --sort lag")
def top(
    session: Session,
    *,
    once: Annotated[bool, typer.Option("--once", help="Print one picture and exit.", show_default=False)] = False,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.2, max=3_600, help="Between two looks.")
    ] = 2.0,
    sort: Annotated[
        str,
        typer.Option("--sort", metavar="|".join(_SORTS), help="What comes first.", autocompletion=fixed(*_SORTS)),
    ] = "name",
    only: Annotated[str, typer.Option("--filter", help="Only groups with this in stream/group.")] = "",
) -> None:
    """Watch a log live: problems, groups with rate, lag and dead letters, and who is at work. In a pipe, one picture.

    Keys: q quit, p pause, s sort, / filter, up and down to choose a group, enter to open it, esc to go back.
    """
    if sort not in _SORTS:
        raise Usage(f"--sort is {', '.join(_SORTS)}, not {sort!r}.")
    from penstock.cli.top.sample import Sampler  # with all that a picture needs
    from penstock.cli.top.view import View

    with session.open() as log:
        sampler = Sampler(log)
        live = not once and not session.as_json and sys.stdin.isatty() and sys.stdout.isatty()
        view = View(session.safe_url, sort, only, watched=live)
        if live:
            from penstock.cli.top.live import Top

            Top(sampler, view, interval).run()
            return
        sample = sampler.look()
        session.answer(_document(sample, view), lambda: view.frame(sample, output.console().width))


def _document(sample: Sample, view: Any) -> dict[str, Any]:
    groups = [
        {**asdict(one.stats), "retrying": one.retrying, "rate": round(one.rate, 3), "minutes": list(one.minutes)}
        for one in view.chosen(sample)
    ]
    return {
        "at": sample.at,
        "horizon": sample.horizon,
        "events": sample.events,
        "problems": [asdict(one) for one in sample.problems],
        "groups": groups,
        "runs": [asdict(one) for one in sample.runs],
    }

"""The command `penstock demo`."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.command import START, command, root
from penstock.cli.completion import fixed
from penstock.cli.demo import orders
from penstock.cli.failures import Usage
from penstock.cli.session import Session


@command(root, "demo", panel=START, example="penstock demo")
def demo(
    session: Session,
    *,
    engine: Annotated[
        str,
        typer.Option(
            "--engine",
            metavar="spark|local",
            help="Spark, or plain processes and no DataFrames.",
            autocompletion=fixed("spark", "local"),
        ),
    ] = "spark",
    count: Annotated[
        int,
        typer.Option("--orders", metavar="N", min=orders.FEWEST, max=orders.MOST, help="How many orders there are."),
    ] = orders.USUAL,
) -> None:
    """See it work: outbox, three groups on Spark, bugs, dead letters, a redrive, the proof. Takes a minute or two."""
    if engine not in ("spark", "local"):
        raise Usage(f"--engine is spark or local, not {engine!r}.")
    from penstock.cli.demo.stage import perform  # with all that the story needs

    perform(session, engine, count)

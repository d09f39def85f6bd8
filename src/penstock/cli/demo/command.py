"""The command `penstock demo`."""

from __future__ import annotations

import random
from typing import Annotated

import typer

from penstock.cli.command import START, command, root
from penstock.cli.completion import fixed
from penstock.cli.demo import orders
from penstock.cli.failures import Usage
from penstock.cli.session import Session


@command(root, "demo", panel=START, example="penstock demo --chaos --seconds 30")
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
    chaos: Annotated[
        bool,
        typer.Option("--chaos", help="Kill workers and the database all the time, and prove that nothing was lost."),
    ] = False,
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="N", min=1, max=86_400, help="How long the chaos lasts.")
    ] = 60.0,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="What the chaos is drawn from; else by chance.")
    ] = None,
) -> None:
    """See it work: outbox, three groups on Spark, bugs, dead letters, a redrive, the proof. Takes a minute or two.

    With --chaos: a shop on a PostgreSQL of its own, whose processes, connections and database are killed.
    """
    if chaos:
        from penstock.cli.demo.chaos.perform import perform as let_it_rain

        let_it_rain(session, seconds, random.randrange(1_000_000) if seed is None else seed)
        return
    if engine not in ("spark", "local"):
        raise Usage(f"--engine is spark or local, not {engine!r}.")
    from penstock.cli.demo.stage import perform  # with all that the story needs

    perform(session, engine, count)

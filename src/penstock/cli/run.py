"""`penstock run`: claim, handle and settle for the groups of an app, in the foreground."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer
from rich.text import Text

from penstock.app import App
from penstock.cli import output
from penstock.cli.command import OPERATE, command, root
from penstock.cli.failures import FAILED, Usage
from penstock.cli.run_display import Display
from penstock.cli.session import Session
from penstock.core.limits import PROCESSES
from penstock.declare.load import load_object
from penstock.engine.drain import Served
from penstock.engine.outcome import Outcome, PoolOutcome
from penstock.errors import InvalidInput
from penstock.log.open import open_log

logger = logging.getLogger("penstock")


@command(root, "run", panel=OPERATE, example="penstock run app.py --engine local --until-drained")
def run(
    session: Session,
    *,
    app: Annotated[str, typer.Argument(metavar="APP", help="file.py, file.py:name or module:name.")],
    groups: Annotated[
        list[str] | None, typer.Option("--group", help="Only this group; repeat it for more.", show_default=False)
    ] = None,
    engine: Annotated[str, typer.Option("--engine", metavar="spark|local", help="Who runs the handlers.")] = "spark",
    master: Annotated[str | None, typer.Option("--master", help="The Spark master.")] = None,
    until_drained: Annotated[
        bool, typer.Option("--until-drained", help="End when nothing is left to do.", show_default=False)
    ] = False,
    processes: Annotated[
        int, typer.Option("--processes", min=1, max=PROCESSES, help="Work in so many processes (local engine).")
    ] = 1,
) -> None:
    """Run the handlers of an app until Ctrl-C or SIGTERM; a second one exits at once."""
    _check_engine(engine, master, processes)
    with own_output(session), _warnings():
        outcome = _run(session, app, groups, engine, master, until_drained, processes)
    if session.as_json:
        output.write_json(_document(outcome))
    else:
        output.console().print(Text(output.plain(outcome.line())), soft_wrap=True)
    if until_drained and outcome.paused:
        raise typer.Exit(FAILED)


def _check_engine(engine: str, master: str | None, processes: int) -> None:
    if engine not in ("spark", "local"):
        raise Usage(f"--engine is spark or local, not {engine!r}.")
    if engine == "local" and master is not None:
        raise InvalidInput("--master belongs to the Spark engine.")
    if engine == "spark" and processes > 1:
        raise InvalidInput("--processes belongs to the local engine: Spark has slots.")


def _run(
    session: Session,
    reference: str,
    groups: Sequence[str] | None,
    engine: str,
    master: str | None,
    until_drained: bool,
    processes: int,
) -> Outcome:
    app: App = load_object(reference, App)
    app.url = session.named_url or app.url  # and $PENSTOCK_URL where neither says anything, as everywhere
    served: list[Served] = [*app.chosen(groups), *app.chosen_pipelines(groups)]
    with open_log(app.url) as log, Display(session.progress_wanted(), log, served):
        return app.run(engine, master=master, groups=groups, until_drained=until_drained, processes=processes)


def _document(outcome: Outcome) -> dict[str, Any]:
    document = {"seconds": round(outcome.seconds, 3), "groups": outcome.groups, "paused": outcome.paused}
    if isinstance(outcome, PoolOutcome):
        document["member_deaths"] = outcome.member_deaths
    return document


@contextlib.contextmanager
def own_output(session: Session) -> Iterator[None]:
    """With --json, standard output is the document's: what handlers print, in whatever process, goes to stderr."""
    if not session.as_json:
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


class _PlainLines(logging.Handler):
    """One line on standard error for each record, above whatever is shown there."""

    def emit(self, record: logging.LogRecord) -> None:
        print(output.plain(record.getMessage()), file=sys.stderr, flush=True)


@contextlib.contextmanager
def _warnings() -> Iterator[None]:
    handler = _PlainLines(logging.WARNING)
    # An app that configures logging has said where its warnings go.
    handler.addFilter(lambda record: logger.handlers == [handler] and not logging.getLogger().handlers)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)

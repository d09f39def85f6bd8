"""`penstock ingest`: read other systems' streams into the log, in the foreground."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import output
from penstock.cli.arguments import MetricsHost, MetricsPort, Traces
from penstock.cli.command import OPERATE, command, root
from penstock.cli.failures import FAILED
from penstock.cli.session import Session

if TYPE_CHECKING:
    from penstock.engine.outcome import Outcome


@command(root, "ingest", panel=OPERATE, example="penstock ingest app.py --until-drained")
def ingest(
    session: Session,
    *,
    app: Annotated[str, typer.Argument(metavar="APP", help="file.py, file.py:name or module:name.")],
    until_drained: Annotated[
        bool, typer.Option("--until-drained", help="End when the sources have nothing more.", show_default=False)
    ] = False,
    master: Annotated[str | None, typer.Option("--master", help="Spark's master, if there are files to read.")] = None,
    traces: Traces = False,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = None,
) -> None:
    """Ingest from the sources of an app until Ctrl-C or SIGTERM; a second one exits at once."""
    from penstock.cli.run import load_app, own_output
    from penstock.cli.run_lines import life_shown, warnings_shown

    with own_output(session), warnings_shown(session.json_lines):
        declared = load_app(session, app, traces, metrics_port, metrics_host)
        with contextlib.nullcontext() if session.quiet else life_shown("ingest", session.json_lines):
            outcome = declared.run_ingests(until_drained=until_drained, master=master)
    if session.as_json:
        output.write_json(_document(outcome))
    else:
        output.console().print(output.plain(outcome.line()), soft_wrap=True)
    if outcome.paused:
        raise typer.Exit(FAILED)


def _document(outcome: Outcome) -> dict[str, Any]:
    return {"seconds": round(outcome.seconds, 3), "sources": outcome.sources, "failed": outcome.paused}

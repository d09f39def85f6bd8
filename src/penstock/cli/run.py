"""`penstock run`: claim, handle and settle for the groups of an app, in the foreground."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from penstock.cli import near, output
from penstock.cli.arguments import MetricsHost, MetricsPort, Traces, telemetry
from penstock.cli.command import OPERATE, command, root
from penstock.cli.completion import fixed, groups_everywhere
from penstock.cli.failures import FAILED, Usage
from penstock.cli.session import Session
from penstock.core.limits import PROCESSES
from penstock.errors import InvalidInput, UnknownGroup

if TYPE_CHECKING:
    from penstock.app import App
    from penstock.engine.drain import Served
    from penstock.engine.outcome import Outcome


@command(root, "run", panel=OPERATE, example="penstock run app.py --engine local --until-drained")
def run(
    session: Session,
    *,
    app: Annotated[str, typer.Argument(metavar="APP", help="file.py, file.py:name or module:name.")],
    groups: Annotated[
        list[str] | None,
        typer.Option(
            "--group",
            help="Only this group; repeat it for more.",
            show_default=False,
            autocompletion=groups_everywhere,
        ),
    ] = None,
    engine: Annotated[
        str,
        typer.Option(
            "--engine", metavar="spark|local", help="Who runs the handlers.", autocompletion=fixed("spark", "local")
        ),
    ] = "spark",
    master: Annotated[str | None, typer.Option("--master", help="The Spark master.")] = None,
    until_drained: Annotated[
        bool, typer.Option("--until-drained", help="End when nothing is left to do.", show_default=False)
    ] = False,
    processes: Annotated[
        int,
        typer.Option(
            "--processes", metavar="N", min=1, max=PROCESSES, help="Work in so many processes (local engine)."
        ),
    ] = 1,
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="K=V", help="A setting of Spark; repeat it for more.", show_default=False),
    ] = None,
    py_files: Annotated[str, typer.Option("--py-files", help="Python files for the executors: a.py,b.zip.")] = "",
    archives: Annotated[
        str, typer.Option("--archives", help="Archives that executors unpack: env.tar.gz#environment.")
    ] = "",
    files: Annotated[str, typer.Option("--files", help="Other files for the executors.")] = "",
    traces: Traces = False,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = None,
) -> None:
    """Run the handlers of an app until Ctrl-C or SIGTERM; a second one exits at once."""
    from penstock.cli.run_lines import warnings_shown

    spark = SparkOptions(master, spark_settings(conf), _listed(py_files), _listed(archives), _listed(files))
    _check_engine(engine, spark, processes)
    with own_output(session), warnings_shown(session.json_lines):
        loaded = load_app(session, app, traces, metrics_port, metrics_host)
        outcome = _run(session, loaded, groups, engine, spark, until_drained, processes)
    if session.as_json:
        output.write_json(run_document(outcome))
    else:
        output.console().print(output.plain(outcome.line()), soft_wrap=True)
    if until_drained and outcome.paused:
        raise typer.Exit(FAILED)


class SparkOptions(NamedTuple):
    """The options of the Spark engine, by the names of `App.run`."""

    master: str | None
    conf: dict[str, str]
    py_files: list[str]
    archives: list[str]
    files: list[str]


def spark_settings(said: Sequence[str] | None) -> dict[str, str]:
    """Settings of Spark that were given as `K=V`."""
    for one in said or ():
        if not one.partition("=")[1] or not one.startswith("spark."):
            raise Usage(f"--conf takes spark.name=value, not {one!r}.")
    return dict(one.split("=", 1) for one in said or ())


def _listed(said: str) -> list[str]:
    return [one.strip() for one in said.split(",") if one.strip()]


def _check_engine(engine: str, spark: SparkOptions, processes: int) -> None:
    if engine not in ("spark", "local"):
        raise Usage(f"--engine is spark or local, not {engine!r}.")
    given = [name for name, value in spark._asdict().items() if value]
    if engine == "local" and given:
        raise InvalidInput(f"--{given[0].replace('_', '-')} belongs to the Spark engine.")
    if engine == "spark" and processes > 1:
        raise InvalidInput("--processes belongs to the local engine: Spark has slots.")


def load_app(session: Session, reference: str, traces: bool, port: int | None, host: str | None) -> App:
    """The app that a command runs, on the log and with the telemetry that the command names."""
    from penstock.app import App
    from penstock.declare.load import load_object

    app: App = load_object(reference, App)
    app.url = session.named_url or app.url  # and $PENSTOCK_URL where neither says anything, as everywhere
    app.telemetry = telemetry(app.telemetry, traces, port, host)
    return app


def _run(
    session: Session,
    app: App,
    groups: Sequence[str] | None,
    engine: str,
    spark: SparkOptions,
    until_drained: bool,
    processes: int,
) -> Outcome:
    served = _served(app, groups)
    with shown(session, app, served, engine):
        options = spark._asdict() if engine == "spark" else {}
        return app.run(engine, groups=groups, until_drained=until_drained, processes=processes, **options)


def _served(app: App, groups: Sequence[str] | None) -> list[Served]:
    try:
        jobs = [] if groups else app.jobs
        return [*app.chosen(groups), *app.chosen_pipelines(groups), *app.chosen_queries(groups), *jobs]
    except UnknownGroup as error:
        wrong = next((one for one in groups or () if one not in app.groups), "")
        error.details[near.KEY] = near.question(wrong, app.groups)
        raise


@contextlib.contextmanager
def shown(session: Session, app: App, served: Sequence[Served], engine: str) -> Iterator[None]:
    """What is seen of the run on standard error: a live summary on a terminal, lines elsewhere, nothing if quiet."""
    if session.progress_wanted():
        from penstock.cli.run_display import Display

        starting = "Spark is starting" if engine == "spark" else "starting"
        with app.open() as log, Display(True, log, served, starting=starting):
            yield
    elif session.quiet:
        yield
    else:
        from penstock.cli.run_lines import life_shown

        with life_shown(engine, session.json_lines):
            yield


def run_document(outcome: Outcome) -> dict[str, Any]:
    from penstock.engine.outcome import PoolOutcome

    document = {"seconds": round(outcome.seconds, 3), "groups": outcome.groups, "paused": outcome.paused}
    if outcome.sources:
        document["sources"] = outcome.sources
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

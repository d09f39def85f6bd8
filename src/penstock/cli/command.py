"""What every command has in common: its options, before or behind its name, its help, and an example."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer

from penstock.cli import help, near
from penstock.cli.completion import fixed
from penstock.cli.failures import Usage
from penstock.cli.session import Options, Session
from penstock.errors import UnknownEvent, UnknownGroup

F = TypeVar("F", bound=Callable[..., None])

START, WRITE, LOOK, OPERATE = "Getting started", "Writing", "Looking (changes nothing)", "Operating"

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="Where the log is; else $PENSTOCK_URL, else sqlite:///penstock.db.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON document.", show_default=False)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress; warnings stay.", show_default=False)]
LogFormat = Annotated[
    str | None,
    typer.Option(
        "--log-format",
        metavar="text|json",
        help="How lines on standard error are written.",
        show_default="text",
        autocompletion=fixed("text", "json"),
    ),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the trace of an error.", show_default=False)]
Version = Annotated[bool, typer.Option("--version", help="Print all versions and exit.", show_default=False)]

root = typer.Typer(
    name="penstock",
    cls=help.Group,
    help="A durable event log in your own database, in which every message has a lifecycle for every consumer group.",
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage. Example: penstock demo",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["--help", "-h"]},
)
group = typer.Typer(
    name="group",
    cls=help.Group,
    help="Create, set, pause, resume, rewind, bind or delete a group.",
    rich_markup_mode=None,
)
root.add_typer(group, rich_help_panel=OPERATE, epilog="Example: penstock group create orders fraud --types 'order.*'")

schedule = typer.Typer(
    name="schedule",
    cls=help.Group,
    help="Jobs that are submitted by the clock.",
    rich_markup_mode=None,
)
root.add_typer(schedule, rich_help_panel=OPERATE, epilog="Example: penstock schedule run nightly")
job_type = typer.Typer(
    name="job-type",
    cls=help.Group,
    help="How long jobs of a type stay, and how many there were.",
    rich_markup_mode=None,
)
root.add_typer(job_type, rich_help_panel=OPERATE, epilog="Example: penstock job-type set email:send --keep-finished 7d")
retention = typer.Typer(
    name="retention",
    cls=help.Group,
    help="How long the events of streams stay.",
    rich_markup_mode=None,
)
root.add_typer(retention, rich_help_panel=OPERATE, epilog="Example: penstock retention set orders --keep 30d")
token = typer.Typer(
    name="token", cls=help.Group, help="Create, list or revoke tokens of the HTTP service.", rich_markup_mode=None
)
root.add_typer(token, rich_help_panel=OPERATE, epilog="Example: penstock token create billing --scope read")
operation = typer.Typer(
    name="operation",
    cls=help.Group,
    help="Watch, run, pause, resume or abort what moves many deliveries.",
    rich_markup_mode=None,
)
root.add_typer(operation, rich_help_panel=OPERATE, epilog="Example: penstock operation list")
fingerprint = typer.Typer(
    name="fingerprint",
    cls=help.Group,
    help="Dead letters by kind of error, and notes on each kind.",
    rich_markup_mode=None,
)
root.add_typer(fingerprint, rich_help_panel=OPERATE, epilog="Example: penstock fingerprint list orders fraud")
imports = typer.Typer(
    name="import",
    cls=help.Group,
    help="Take over events and their states from another system.",
    rich_markup_mode=None,
)
root.add_typer(imports, rich_help_panel=WRITE, epilog="Example: penstock import osqueue queue.json --dry-run")


@root.callback(invoke_without_command=True)
@group.callback(invoke_without_command=True)
@schedule.callback(invoke_without_command=True)
@job_type.callback(invoke_without_command=True)
@retention.callback(invoke_without_command=True)
@token.callback(invoke_without_command=True)
@operation.callback(invoke_without_command=True)
@fingerprint.callback(invoke_without_command=True)
@imports.callback(invoke_without_command=True)
def start(
    ctx: typer.Context,
    url: Url = None,
    as_json: Json = False,
    quiet: Quiet = False,
    log_format: LogFormat = None,
    debug: Debug = False,
    version: Version = False,
) -> None:
    """Take the options in front of a command's name; without a command, show the help."""
    options = Options(url, as_json, quiet, log_format, debug)
    if version:
        from penstock.cli.explain import print_versions

        print_versions(Session(options))
        raise typer.Exit(0)
    ctx.obj = (ctx.obj or Options()).over(options)
    if ctx.invoked_subcommand is None:
        if ctx.obj.as_json:
            raise Usage("No command was named.")
        typer.echo(ctx.get_help())
        raise typer.Exit(2)


_COMMON = [
    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
    for name, default, annotation in (
        ("url", None, Url),
        ("as_json", False, Json),
        ("quiet", False, Quiet),
        ("log_format", None, LogFormat),
        ("debug", False, Debug),
    )
]


def command(app: typer.Typer, name: str, *, example: str, panel: str | None = None) -> Callable[[F], F]:
    """Register a function of a `Session` and the command's own parameters; its docstring is the help."""

    def register(function: F) -> F:
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]

        def run(ctx: typer.Context, **values: Any) -> None:
            later = Options(**{one.name: values.pop(one.name) for one in _COMMON})
            with Session((ctx.obj or Options()).over(later)) as session:
                try:
                    function(session, **values)
                except (UnknownEvent, UnknownGroup) as error:
                    near.suggest(error, session, values)
                    raise

        context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
        shown = [context, *(one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own), *_COMMON]
        run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]  # this is how Typer learns of them
        run.__annotations__ = {one.name: one.annotation for one in shown}
        run.__doc__ = function.__doc__
        app.command(name, cls=help.Command, epilog=f"Example: {example}", rich_help_panel=panel)(run)
        return function

    return register

"""What every command has in common: `--url`, `--json` and `--debug`, before or behind its name, and an example."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer

from penstock.cli.failures import Usage
from penstock.cli.session import Options, Session

F = TypeVar("F", bound=Callable[..., None])

START, WRITE, LOOK, OPERATE = "Getting started", "Writing", "Looking (changes nothing)", "Operating"

Url = Annotated[
    str | None,
    typer.Option("--url", help="Where the log is; else $PENSTOCK_URL, else sqlite:///penstock.db.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON document.", show_default=False)]
Debug = Annotated[bool, typer.Option("--debug", help="Show the trace of an error.", show_default=False)]

root = typer.Typer(
    name="penstock",
    help="A durable event log in your own database, in which every message has a lifecycle for every consumer group.",
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage. Example: penstock demo",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)
group = typer.Typer(name="group", help="Create, pause, resume, rewind, bind or delete a group.")
root.add_typer(group, rich_help_panel=OPERATE, epilog="Example: penstock group create orders fraud --types 'order.*'")


@root.callback(invoke_without_command=True)
@group.callback(invoke_without_command=True)
def remember(ctx: typer.Context, url: Url = None, as_json: Json = False, debug: Debug = False) -> None:
    """Take the options in front of a command's name; without a command, show the help."""
    ctx.obj = (ctx.obj or Options()).over(url, as_json, debug)
    if ctx.invoked_subcommand is None:
        if ctx.obj.as_json:
            raise Usage("No command was named.")
        typer.echo(ctx.get_help())
        raise typer.Exit(2)


_COMMON = [
    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
    for name, default, annotation in (("url", None, Url), ("as_json", False, Json), ("debug", False, Debug))
]


def command(app: typer.Typer, name: str, *, example: str, panel: str | None = None) -> Callable[[F], F]:
    """Register a function of a `Session` and the command's own parameters; its docstring is the help."""

    def register(function: F) -> F:
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]

        def run(ctx: typer.Context, **values: Any) -> None:
            options = ctx.obj or Options()
            with Session(options.over(values.pop("url"), values.pop("as_json"), values.pop("debug"))) as session:
                function(session, **values)

        context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
        shown = [context, *(one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own), *_COMMON]
        run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]  # this is how Typer learns of them
        run.__annotations__ = {one.name: one.annotation for one in shown}
        run.__doc__ = function.__doc__
        app.command(name, epilog=f"Example: {example}", rich_help_panel=panel)(run)
        return function

    return register

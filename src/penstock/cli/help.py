"""What `--help` prints: plain text, which needs nothing but Typer itself."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

from typer.core import TyperCommand, TyperGroup

_VALUE = {"int": "N", "float": "N"}  # what stands for a value; everything else is TEXT


class Command(TyperCommand):
    """A command whose help has usage, text, arguments, options and an example."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        _write(self, ctx, formatter, [])


class Group(TyperGroup):
    """The same for a group of commands: they are listed by panel."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        _write(self, ctx, formatter, ["COMMAND", "…"])

    def panels(self, ctx: Any) -> dict[str, list[tuple[str, str]]]:
        """The commands and their first sentence, by panel, in the order in which they were registered."""
        found: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            one = self.get_command(ctx, name)
            if one is not None and not one.hidden:
                panel = getattr(one, "rich_help_panel", None)
                about = inspect.cleandoc(one.help or "").partition("\n")[0]
                found.setdefault(panel if isinstance(panel, str) else "Commands", []).append((name, about))
        return found


def _write(command: Command | Group, ctx: Any, formatter: Any, more: Sequence[str]) -> None:
    parameters = [one for one in command.get_params(ctx) if not getattr(one, "hidden", False)]
    arguments = [one for one in parameters if one.param_type_name == "argument"]
    options = [one for one in parameters if one.param_type_name == "option"]
    formatter.write_usage(ctx.command_path, " ".join(["[OPTIONS]", *map(_usage, arguments), *more]))
    with formatter.indentation():
        formatter.write_paragraph()
        formatter.write_text(inspect.cleandoc(command.help or ""))
    _section(formatter, "Arguments", [(_value(one), _about(one, ctx)) for one in arguments])
    if isinstance(command, Group):
        for panel, rows in command.panels(ctx).items():
            _section(formatter, panel, rows)
    _section(formatter, "Options", [(_names(one), _about(one, ctx)) for one in options])
    if command.epilog:
        formatter.write_paragraph()
        formatter.write_text(inspect.cleandoc(command.epilog))


def _section(formatter: Any, title: str, rows: Sequence[tuple[str, str]]) -> None:
    if rows:
        with formatter.section(title):
            formatter.write_dl(rows)


def _usage(argument: Any) -> str:
    name = _value(argument) + ("…" if argument.nargs != 1 else "")
    return name if argument.required else f"[{name}]"


def _names(option: Any) -> str:
    """`--yes, -y`, `--keep-dead / --drop-dead`, `--limit N`."""
    names = ", ".join(sorted(option.opts, key=len, reverse=True))
    if option.secondary_opts:
        names += f" / {', '.join(option.secondary_opts)}"
    return names if option.is_flag else f"{names} {_value(option)}"


def _value(parameter: Any) -> str:
    if parameter.metavar:
        return str(parameter.metavar)
    if parameter.param_type_name == "argument":
        return str(parameter.name).upper()
    kind = getattr(parameter, "type_descriptor", None)
    name = getattr(kind, "annotation", None) or getattr(parameter, "type", None)
    return _VALUE.get(getattr(name, "__name__", getattr(name, "name", "")), "TEXT")


def _about(parameter: Any, ctx: Any) -> str:
    return " ".join([parameter.help or "", *_notes(parameter, ctx)]).strip()


def _notes(parameter: Any, ctx: Any) -> Iterator[str]:
    default = parameter.default
    if parameter.required:
        yield "[required]"
    elif parameter.show_default and not (default is None or default is False or callable(default)):
        if isinstance(default, bool):
            default = str(parameter.opts[0])
        yield f"[default: {default:g}]" if isinstance(default, float) else f"[default: {default}]"

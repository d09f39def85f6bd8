"""How a command fails: the errors only the command line has, and the one place that reports any error."""

from __future__ import annotations

import itertools
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from penstock.cli import output
from penstock.errors import InvalidInput, InvalidPipeline, InvalidQuery, PenstockError

if TYPE_CHECKING:
    from rich.text import Text

DONE, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130
_FOUND_OUT = (InvalidPipeline, InvalidQuery)  # by a look at the app and its sinks: the command line was right


class Usage(InvalidInput):
    """The command line was not understood; nothing was done."""

    code = "usage"
    hint = "Run the command with --help: it shows its arguments, its options and an example."


class ConfirmationNeeded(InvalidInput):
    """This needs a yes, and standard input is not a terminal, so nobody can be asked; nothing was changed."""

    code = "confirmation_needed"
    hint = "Look first with --dry-run where the command has it, then repeat it with --yes."


class UnknownCode(InvalidInput):
    """No error has this code."""

    code = "unknown_code"
    hint = "`penstock explain` without a code lists them all."


class Aborted(PenstockError):
    """The answer was no; nothing was changed."""

    code = "aborted"
    hint = "Repeat the command and answer y, or say --yes."


class Unexpected(PenstockError):
    """Something happened that Penstock did not foresee; it is a mistake of ours, or of the database's."""

    code = "unexpected"
    hint = "Run it again with --debug to see where, and report it."


def report(error: BaseException, arguments: Sequence[str]) -> int:
    """Say what went wrong, as the command line asked for it, and return the exit code."""
    code, described = _describe(error)
    if "--debug" in arguments:
        traceback.print_exception(error, file=sys.stderr)
    if "--json" in arguments:
        output.write_json({"error": described})
    elif _wants_json_lines(arguments):
        from penstock.telemetry import logs

        print(logs.as_line(logs.document("error", "failed", **described)), file=sys.stderr, flush=True)
    else:
        output.error_console().print(_shown(described), soft_wrap=True)
    return code


def _wants_json_lines(arguments: Sequence[str]) -> bool:
    return "--log-format=json" in arguments or ("--log-format", "json") in itertools.pairwise(arguments)


def _describe(error: BaseException) -> tuple[int, dict[str, str]]:
    if isinstance(error, typer.Abort):
        error = Aborted()
    if isinstance(error, PenstockError):
        code = WRONG_USAGE if isinstance(error, InvalidInput) and not isinstance(error, _FOUND_OUT) else FAILED
        meant = error.details.get("did_you_mean")
        return code, _document(error.code, error.message, f"{meant} {error.hint}" if meant else error.hint)
    # Typer raises Click's errors, of the Click it was built with or of the one it carries; both answer to this.
    message, context = getattr(error, "format_message", None), getattr(error, "ctx", None)
    if message is not None:
        hint = f"See `{context.command_path} --help`." if context is not None else Usage.hint
        return WRONG_USAGE, _document(Usage.code, message(), hint)
    said = str(error).strip().splitlines()
    summary = f"{type(error).__name__}: {said[0]}" if said else type(error).__name__
    return FAILED, _document(Unexpected.code, summary, Unexpected.hint)


def _document(code: str, message: str, hint: str) -> dict[str, str]:
    # Arguments may hold bytes that are no text, and JSON has no way to say so.
    clean = message.encode("utf-8", "backslashreplace").decode()
    return {"code": code, "message": clean, "hint": hint}


def _shown(described: dict[str, str]) -> Text:
    from rich.text import Text

    return Text.assemble(
        ("error ", "bold red"),
        (f"[{described['code']}] ", "red"),
        output.plain(described["message"]),
        ("\n" + described["hint"], "dim"),
    )

"""One run of a command: which log, how to answer, and whom to ask before something is destroyed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, fields
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING

import typer

from penstock.cli import output
from penstock.cli.failures import ConfirmationNeeded, Usage
from penstock.core.urls import without_password

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.log.log import Log


@dataclass(frozen=True, slots=True)
class Options:
    """The options that every command takes."""

    url: str | None = None
    as_json: bool = False
    quiet: bool = False
    log_format: str | None = None
    debug: bool = False

    def over(self, later: Options) -> Options:
        """These options, with what was said later on top."""
        return Options(*(getattr(later, one.name) or getattr(self, one.name) for one in fields(self)))


class Session:
    """What a command gets: a log to open, an answer to give, a question to ask."""

    def __init__(self, options: Options) -> None:
        if options.log_format not in (None, "text", "json"):
            raise Usage(f"--log-format is text or json, not {options.log_format!r}.")
        self.as_json = options.as_json
        self.quiet = options.quiet
        self.json_lines = options.log_format == "json"  # on standard error
        self.named_url = options.url
        self._closing = ExitStack()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.close()

    # --- the log -------------------------------------------------------------------------------------------------

    @cached_property
    def url(self) -> str:
        """Where the log is."""
        from penstock.log.open import url_of  # here, because `--help` needs no log

        return url_of(self.named_url)

    @property
    def safe_url(self) -> str:
        """The URL without its password."""
        return without_password(self.url)

    def open(self, *, create: bool = False, patience_seconds: float | None = None) -> Log:
        """The log. Only commands that write something new may `create` it; the others want it to exist."""
        from penstock.log.open import open_existing, open_log

        log = open_log(self.url, patience_seconds=patience_seconds) if create else open_existing(self.url)
        self._closing.callback(log.close)
        return log

    # --- answering -----------------------------------------------------------------------------------------------

    def answer(self, document: object, show: Callable[[], RenderableType]) -> None:
        """The command's one answer: a JSON document, or something to look at."""
        if self.as_json:
            output.write_json(document)
        else:
            output.console().print(show())

    def progress_wanted(self) -> bool:
        """Whether somebody watches who would like to see how far it is."""
        return sys.stderr.isatty() and not (self.as_json or self.quiet or self.json_lines)

    # --- asking --------------------------------------------------------------------------------------------------

    def confirm(self, yes: bool, question: Callable[[], str]) -> None:
        """Ask on a terminal; refuse where nobody can be asked. `--yes` answers beforehand."""
        if yes:
            return
        self.refuse_unasked(yes)
        typer.confirm(question(), abort=True, err=True)

    def confirm_if_watched(self, yes: bool, question: Callable[[], str]) -> None:
        """Ask on a terminal only: for what scripts do every day, and what the command line spells out."""
        if not yes and sys.stdin.isatty():
            self.confirm(yes, question)

    def refuse_unasked(self, yes: bool) -> None:
        """The half of `confirm` that needs no log, to be done before one is opened."""
        if not yes and not sys.stdin.isatty():
            raise ConfirmationNeeded

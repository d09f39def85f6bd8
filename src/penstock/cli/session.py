"""One run of a command: which log, how to answer, and whom to ask before something is destroyed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit, urlunsplit

import typer
from rich.console import RenderableType

from penstock.cli import output
from penstock.cli.failures import ConfirmationNeeded
from penstock.errors import InvalidUrl, StoreUnavailable
from penstock.log.log import Log
from penstock.log.opening import DEFAULT_URL, make_store
from penstock.stores.base import Store


@dataclass(frozen=True, slots=True)
class Settings:
    """The options that every command takes."""

    url: str | None = None
    as_json: bool = False
    debug: bool = False

    def over(self, url: str | None, as_json: bool, debug: bool) -> Settings:
        """These settings, with what was said later on top."""
        return Settings(url or self.url, as_json or self.as_json, debug or self.debug)


class Session:
    """What a command gets: a log to open, an answer to give, a question to ask."""

    def __init__(self, settings: Settings) -> None:
        self.as_json = settings.as_json
        self.named_url = settings.url
        self.url = settings.url or os.environ.get("PENSTOCK_URL") or DEFAULT_URL
        self._closing = ExitStack()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.close()

    # --- the log -------------------------------------------------------------------------------------------------

    @property
    def safe_url(self) -> str:
        """The URL without its password."""
        return without_password(self.url)

    def store(self, *, create: bool) -> Store:
        """The store of the URL, closed with the session; without `create`, only one that is there already."""
        if urlsplit(self.url).scheme not in ("sqlite", "postgresql", "postgres"):
            raise InvalidUrl(f"{self.safe_url[:80]!r} names no store.")
        path = sqlite_path(self.url)
        if not create and path is not None and not path.exists():
            raise StoreUnavailable(f"There is no log at {path}; run `penstock init`.")
        store = make_store(self.url)
        self._closing.callback(store.close)
        return store

    def open(self, *, create: bool = False) -> Log:
        """The log. Only commands that write something new may `create` it; the others want it to exist."""
        store = self.store(create=create)
        if not create:
            with store.transaction(write=False) as tx:
                tx.one("tally.last")  # any table will do: raises SchemaMissing where there is none
        store.migrate()
        return Log(store)

    # --- answering -----------------------------------------------------------------------------------------------

    def answer(self, document: object, show: Callable[[], RenderableType]) -> None:
        """The command's one answer: a JSON document, or something to look at."""
        if self.as_json:
            output.write_json(document)
        else:
            output.console().print(show())

    def progress_wanted(self) -> bool:
        """Whether somebody watches who would like to see how far it is."""
        return sys.stderr.isatty() and not self.as_json

    # --- asking --------------------------------------------------------------------------------------------------

    def confirm(self, yes: bool, question: Callable[[], str]) -> None:
        """Ask on a terminal; refuse where nobody can be asked. `--yes` answers beforehand."""
        if yes:
            return
        self.refuse_unasked(yes)
        typer.confirm(question(), abort=True, err=True)

    def refuse_unasked(self, yes: bool) -> None:
        """The half of `confirm` that needs no log, to be done before one is opened."""
        if not yes and not sys.stdin.isatty():
            raise ConfirmationNeeded


def sqlite_path(url: str) -> Path | None:
    """The file of an SQLite URL; None for other stores."""
    if urlsplit(url).scheme != "sqlite":
        return None
    from penstock.stores.sqlite.store import path_of

    return Path(path_of(url))


def without_password(url: str) -> str:
    """A URL that may be shown."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    return urlunsplit(parts._replace(netloc=f"{parts.username}:***@{parts.netloc.rpartition('@')[2]}"))

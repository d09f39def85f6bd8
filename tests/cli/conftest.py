"""A log in either store, and a command line to run against it."""

import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.app import run as run_command


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on standard output."""
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The code of the one error."""
        return str(self.json["error"]["code"])


class Input(io.TextIOWrapper):
    """Standard input, with or without somebody at the keyboard."""

    def __init__(self, text: str, terminal: bool) -> None:
        super().__init__(io.BytesIO(text.encode()), encoding="utf-8")
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


Command = Callable[..., Result]


@pytest.fixture(params=["sqlite", "postgresql"])
def log_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a place for a log; on PostgreSQL it has the schema, but for tests with the mark `empty_place`."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'log.db'}"
    empty = request.node.get_closest_marker("empty_place") is not None
    url: str = request.getfixturevalue("postgres_url" if empty else "postgres_log_url")
    return url


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run a command in this process; standard input is not a terminal unless asked for."""
    monkeypatch.delenv("PENSTOCK_URL", raising=False)

    def run(*arguments: object, stdin: str = "", terminal: bool = False) -> Result:
        monkeypatch.setattr(sys, "stdin", Input(stdin, terminal))
        capsys.readouterr()
        code = run_command([str(one) for one in arguments])
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return run


@pytest.fixture
def penstock(command: Command, log_url: str) -> Command:
    """Run a command against the log, with --json."""
    return lambda *arguments, **options: command(*arguments, "--url", log_url, "--json", **options)

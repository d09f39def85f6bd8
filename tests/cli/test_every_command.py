"""Every command: an example that parses, --json, 60 columns, no colour in pipes, a question before it destroys."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

import penstock as library
from penstock.cli.app import root
from penstock.errors import all_errors
from tests.cli.conftest import Command
from tests.cli.test_cli import fill, work

pytestmark = pytest.mark.shows("O01")
SPECIFIED = """
init append streams groups run worker stop runs submit jobs cancel redrive replay kill reschedule skip prune top
events show dead release ingest stats reap serve doctor explain demo bench conformance version
group-create group-pause group-resume group-rewind group-delete group-set group-bind
token-create token-list token-revoke schedule-list schedule-run schedule-suspend schedule-resume
import-outbox import-vulkan import-pspf import-osqueue
"""
# They ask on a terminal; in a script, the command line says it all.
ASKS_ONLY_PEOPLE = {"prune", "doctor", "schedule delete", "token revoke"}
COMPLETED = {"stream", "group", "state"}
NAMES_NOTHING_KNOWN = {"append", "import outbox", "import pspf", "import vulkan"}  # the stream or group may be new


def every_command(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    command = command or typer.main.get_command(root)
    inside = getattr(command, "commands", None)
    if inside is None:
        yield " ".join(path), command
        return
    for name, one in inside.items():
        yield from every_command(one, (*path, name))


COMMANDS = dict(every_command())


def options(command: Any) -> set[str]:
    return {name for one in command.params for name in one.opts}


def example(command: Any) -> list[str]:
    """The words of the example, without the program's name and the command's."""
    return shlex.split(command.epilog.removeprefix("Example: penstock "))


def test_every_verb_of_the_interface_exists() -> None:
    assert {name.replace("-", " ", 1) if "-" in name else name for name in SPECIFIED.split()} <= {*COMMANDS}


def test_each_has_an_example_that_parses() -> None:
    for path, command in COMMANDS.items():
        words = example(command)
        assert words[: len(path.split())] == path.split()
        context = command.make_context(path, words[len(path.split()) :])
        assert context.args == [] and inspect.cleandoc(command.help or "").strip(), path
        for one in command.params:
            assert getattr(one, "help", None), f"{path}: {one.name} says nothing about itself"


def test_each_has_the_common_options() -> None:
    for path, command in COMMANDS.items():
        assert options(command) >= {"--json", "--url", "--quiet", "--log-format", "--debug"}, path


def test_each_help_fits_sixty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    for path, one in COMMANDS.items():
        shown = one.get_help(one.make_context(path, [], resilient_parsing=True))
        assert "Example: penstock" in " ".join(shown.split()) and "--json" in shown, path
        assert max(map(len, shown.splitlines())) <= 60, path


def test_names_that_the_log_knows_are_completed() -> None:
    for path in COMMANDS.keys() - NAMES_NOTHING_KNOWN:
        for one in COMMANDS[path].params:
            if one.name in COMPLETED and getattr(one, "multiple", False) is False:
                assert getattr(one, "_custom_shell_complete", None) is not None, f"{path} {one.name}"


@pytest.mark.parametrize("path", [one for one, command in COMMANDS.items() if "--yes" in options(command)])
def test_what_destroys_asks_first(path: str, command: Command, tmp_path: Path, filled: str) -> None:
    """Nobody there to be asked: refused before a log is opened. Somebody there who says no: nothing is done."""
    words = [one for one in example(COMMANDS[path]) if one not in ("--yes", "--dry-run")]
    if path in ASKS_ONLY_PEOPLE:
        refused = command(*words, "--url", filled, "--json", stdin="n\n", terminal=True)
        assert (refused.code, refused.error) == (1, "aborted") and "?" in refused.err
        return
    refused = command(*words, "--url", f"sqlite:///{tmp_path / 'log.db'}", "--json")
    assert (refused.code, refused.error) == (2, "confirmation_needed")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A log with what the examples name: orders with dead letters, groups, a token and a schedule."""
    url = f"sqlite:///{tmp_path_factory.mktemp('log') / 'log.db'}"
    ids = fill(url)
    work(url, dead=ids[:2])
    with library.open(url) as log:
        log.create_group("orders", "lake")
        log.create_token("billing", ["read"])
        log.schedule("nightly", "0 3 * * *", type="report", payload={})
        log.submit("email:send", {"to": "ada"})
    return url


LOOKING = [
    *("streams", "groups", "groups orders", "events orders", "events orders --group fraud", "show orders 1"),
    *("dead orders fraud", "stats", "runs --all", "top", "jobs", "schedule list", "job-type list", "token list"),
    *("readers orders lake", "doctor", "explain", "explain lease_lost", "version"),
    *("redrive orders fraud --all --dry-run", "replay orders fraud --all --dry-run"),
    "group rewind orders fraud --to 1 --dry-run",
]


@pytest.mark.parametrize("line", LOOKING)
def test_it_fits_sixty_columns_without_colour(
    line: str, command: Command, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    shown = command(*line.split(), "--url", filled)
    assert shown.code == 0, shown.err
    assert shown.out and "\x1b" not in shown.out and "Traceback" not in shown.err
    assert max(map(len, shown.out.splitlines())) <= 60, shown.out
    assert command(*line.split(), "--url", filled, "--json").json


@pytest.mark.shows("O07")
def test_every_code_is_explained_offline(command: Command) -> None:
    nowhere = ("--json", "--url", "postgresql://nobody@127.0.0.1:1/x")
    told = {one["code"]: one for one in command("explain", *nowhere).json["errors"]}
    assert told.keys() == all_errors().keys()
    for code, one in told.items():
        assert one["message"] and one["hint"] and re.fullmatch(r"[a-z_]+", code)
    for code in [*told][::12]:
        assert command("explain", code, *nowhere).json == told[code]

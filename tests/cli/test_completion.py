"""What the shell completes, asked the way the shell asks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

import penstock as library
from penstock.cli import completion
from penstock.cli.app import root
from penstock.cli.completion import fixed


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = f"sqlite:///{tmp_path_factory.mktemp('log') / 'log.db'}"
    with library.open(made) as log:
        for stream in ("orders", "outlet", "payments"):
            log.append(stream, {}, type="t")
        log.create_group("orders", "fraud")
        log.create_group("orders", "mail")
        log.create_group("payments", "ledger")
    return made


def complete(line: str, **environment: str) -> list[str]:
    """What `line<TAB>` offers, in a process of its own, as in bash."""
    words = line.split(" ")
    given = {
        **{name: value for name, value in os.environ.items() if name != "PENSTOCK_URL"},
        "_PENSTOCK_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        **environment,
    }
    script = "import sys; sys.argv = ['penstock']; from penstock.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", script], env=given, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.split()


def test_the_shell_completes_streams_and_groups(url: str) -> None:
    assert complete("penstock dead o", PENSTOCK_URL=url) == ["orders", "outlet"]
    assert complete("penstock dead orders ", PENSTOCK_URL=url) == ["fraud", "mail"]


def in_process(url: str | None, *line: str) -> list[str]:
    """The same without a process: the parameter that comes next, or the value of the option that was named last."""
    command = typer.main.get_command(root)
    *before, incomplete = line
    context = command.make_context("penstock", ["--url", url] if url else [], resilient_parsing=True)
    while before and hasattr(command, "get_command"):
        command = command.get_command(context, before.pop(0))  # type: ignore[assignment]
        option = before.pop() if before and before[-1].startswith("--") else None
        context = command.make_context(command.name, [*before], parent=context, resilient_parsing=True)
        if option is not None:
            before.append(option)
    if before and before[-1].startswith("--"):
        parameter = next(one for one in command.params if before[-1] in one.opts)
    else:
        arguments = [one for one in command.params if one.param_type_name == "argument"]
        parameter = arguments[len(before)]
    return [one.value for one in parameter.shell_complete(context, incomplete)]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        (("redrive", "pay"), ["payments"]),
        (("redrive", "orders", ""), ["fraud", "mail"]),
        (("events", "orders", "--group", "f"), ["fraud"]),
        (("events", "orders", "--state", "P"), ["PENDING", "PUBLISHED"]),
        (("events", "orders", "--state", "d"), ["dead"]),
        (("run", "app.py", "--engine", ""), ["spark", "local"]),
        (("run", "app.py", "--group", "l"), ["ledger"]),
        (("demo", "--engine", "l"), ["local"]),
        (("stats", "--log-format", ""), ["text", "json"]),
        (("explain", "lease_l"), ["lease_lost"]),
    ],
)
def test_what_is_offered(url: str, line: tuple[str, ...], offered: list[str]) -> None:
    assert in_process(url, *line) == offered


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        (("pause", "or"), ["orders"]),
        (("create", "orders", "x", "--on-dead", ""), ["continue", "halt"]),
        (("set", "orders", "fraud", "--on-dead", "h"), ["halt"]),
        (("rewind", "orders", "fraud", "--state", ""), ["keep", "reset"]),
        (("rewind", "orders", "fraud", "--to", "b"), ["beginning"]),
    ],
)
def test_what_is_offered_for_groups(url: str, line: tuple[str, ...], offered: list[str]) -> None:
    assert in_process(url, "group", *line) == offered


@pytest.mark.parametrize(
    "wrong", ["sqlite:////no/such/place.db", "postgresql://nobody@127.0.0.1:1/x", "nonsense://", "sqlite:///{empty}"]
)
def test_without_a_log_nothing_is_offered_and_nothing_is_created(tmp_path: Path, wrong: str) -> None:
    file = tmp_path / "empty.db"
    assert in_process(wrong.format(empty=file), "dead", "") == []
    assert in_process(wrong.format(empty=file), "dead", "orders", "") == []
    assert not file.exists()


def test_a_log_that_answers_late_is_not_waited_for(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    stuck = threading.Event()
    monkeypatch.setattr(completion, "_PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr(library.Log, "groups", lambda *given: stuck.wait(10))
    assert in_process(url, "dead", "orders", "") == []
    stuck.set()


def test_fixed_values_in_the_case_that_is_typed() -> None:
    assert fixed("PENDING", "DEAD")("de") == ["dead"]
    assert fixed("PENDING", "DEAD")("") == ["PENDING", "DEAD"]

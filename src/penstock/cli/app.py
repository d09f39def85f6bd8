"""The app: every family of commands in the order of `--help`, and how one run of it ends."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
from collections.abc import Sequence

from penstock.cli.command import root
from penstock.cli.failures import report

# Importing a family registers its commands; their order here is their order in --help.
FAMILIES = (
    "init",
    "demo.command",
    "explain",
    "append",
    "imports",
    "inspect",
    "top.command",
    "groups",
    "run",
    "runs",
    "jobs",
    "job_types",
    "schedules",
    "ingest",
    "serve",
    "operate",
    "operations",
    "dead_letters",
    "retention",
    "archives",
    "readers",
    "doctor",
    "conformance",
    "bench",
)
for _family in FAMILIES:
    importlib.import_module(f"penstock.cli.{_family}")


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; whatever went wrong has been reported."""
    try:
        code = root(args=list(arguments), prog_name="penstock", standalone_mode=False)
    except BrokenPipeError:
        return _reader_left()
    except Exception as error:
        with contextlib.suppress(BrokenPipeError):
            return report(error, arguments)
        return _reader_left()
    return code if isinstance(code, int) else 0


def run_and_exit() -> None:
    """Run the process's own arguments and end the process."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that cannot show a letter is no reason to fail
            stream.reconfigure(errors="backslashreplace")
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = _reader_left()
    sys.exit(code)


def _reader_left() -> int:
    """`penstock events … | head`: be silent, also when the interpreter flushes at its end."""
    with contextlib.suppress(OSError, io.UnsupportedOperation):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1

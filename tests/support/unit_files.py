"""systemd units as values: enough of them to start what they start, somewhere else."""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from pathlib import Path


def read_unit(path: Path) -> dict[str, list[str]]:
    """The settings of all sections; a setting may stand several times."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in path.read_text(encoding="utf-8").splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found[name].append(value)
    return found


def read_environment(path: Path) -> dict[str, str]:
    lines = (line.partition("=") for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    return {name: value for name, equals, value in lines if equals}


def command_of(unit: Path, environment: dict[str, str], program: str) -> list[str]:
    """What ExecStart runs, with its variables, and with this program instead of the installed one."""
    (line,) = read_unit(unit)["ExecStart"]
    words = [re.sub(r"\$\{(\w+)\}", lambda name: environment[name[1]], word) for word in shlex.split(line)]
    assert words[0] == "/opt/penstock/bin/penstock"
    return [program, *words[1:]]

"""Dockerfiles as values: enough of them to run one without Docker, in directories."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

KNOWN = ("ARG", "FROM", "RUN", "COPY", "ENV", "USER", "WORKDIR", "EXPOSE", "STOPSIGNAL", "ENTRYPOINT", "CMD")


@dataclass
class Stage:
    """What follows a FROM."""

    base: str
    name: str | None
    steps: list[tuple[str, str]] = field(default_factory=list)

    def all(self, instruction: str) -> list[str]:
        return [value for name, value in self.steps if name == instruction]

    def last(self, instruction: str) -> str:
        return self.all(instruction)[-1]

    def words(self, instruction: str) -> list[str]:
        """The words of an instruction in exec form."""
        found: list[str] = json.loads(self.last(instruction))
        return found

    def environment(self) -> dict[str, str]:
        pairs = [word.partition("=") for value in self.all("ENV") for word in shlex.split(value)]
        return {name: value for name, _, value in pairs}


def read_dockerfile(path: Path, **given: str) -> list[Stage]:
    """The stages, with their arguments filled in: as given, else by default."""
    text = re.sub(r"^#.*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    stages: list[Stage] = []
    arguments: dict[str, str] = {}
    for line in filter(None, (one.strip() for one in text.replace("\\\n", " ").splitlines())):
        instruction, _, value = line.partition(" ")
        assert instruction in KNOWN, line
        if instruction == "ARG":
            name, _, default = value.partition("=")
            arguments[name] = given.get(name, default)
            continue
        value = re.sub(r"\$\{(\w+)\}", lambda found: arguments[found[1]], value.strip())
        if instruction == "FROM":
            base, *name = re.split(r"(?i)\s+as\s+", value)
            stages.append(Stage(base, name[0] if name else None))
        else:
            stages[-1].steps.append((instruction, value))
    return stages


def copies(stage: Stage) -> list[tuple[str | None, list[str], str]]:
    """Of every COPY: the stage it takes from, if any, what, and where to."""
    found = []
    for value in stage.all("COPY"):
        words = value.split()
        source = next((word.removeprefix("--from=") for word in words if word.startswith("--from=")), None)
        *what, to = [word for word in words if not word.startswith("--")]
        found.append((source, what, to))
    return found

"""What somebody can type after the demo: every line works, from where the demo was started."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from penstock.cli.demo.shop import SCREENING
from penstock.core.urls import without_password

_FILE = "sqlite:///penstock-demo.db"


def next_steps(stream: str, dead: Sequence[int], url: str | None, engine: str) -> list[str]:
    """Commands to look around in the log; the demo's own is gone if no URL was given."""
    program = _program()
    if url is None:
        again = "demo" if engine == "spark" else f"demo --engine {engine}"
        return [
            f"{program} {again} --url {_FILE}   # once more, in a log that stays",
            f"{program} stats --url {_FILE}",
            f"{program} events {stream} --group {SCREENING} --limit 10 --url {_FILE}",
            f"{program} doctor --url {_FILE}",
        ]
    named = "" if without_password(url) != url else f" --url {shlex.quote(url)}"
    lines = [] if named else ["(with PENSTOCK_URL set to this log's URL)"]
    lines += [f"{program} stats{named}", f"{program} events {stream} --limit 10{named}"]
    if dead:
        lines.append(f"{program} show {stream} {dead[0]}{named}   # the whole life of an order that was dead")
    return [*lines, f"{program} doctor{named}"]


def _program() -> str:
    """`penstock`, if that is what the shell would run; else the one beside our Python, or Python itself."""
    beside = Path(sys.executable).with_name("penstock")
    on_path = shutil.which("penstock")
    if on_path is not None and Path(on_path) == beside:
        return "penstock"
    if not beside.exists():
        return f"{shlex.quote(sys.executable)} -m penstock.cli"
    here = Path.cwd()
    return shlex.quote(str(beside.relative_to(here) if beside.is_relative_to(here) else beside))

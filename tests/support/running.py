"""A command in a separate process: wait for it, signal it, or hold its handlers at a gate."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.waiting import wait_until

SECONDS = 60.0
ROOT = Path(__file__).parents[2]
PYTHONPATH = f"{ROOT / 'src'}:{ROOT}"  # for children that import this checkout, and the tests


class Running:
    """A process whose output goes to files, so it never blocks on a full pipe."""

    def __init__(self, directory: Path, *command: object, environment: dict[str, str] | None = None, **more: Any):
        self._out, self._err = directory / "stdout", directory / "stderr"
        inherited = {name: value for name, value in os.environ.items() if name != "PENSTOCK_URL"}
        with self._out.open("wb") as out, self._err.open("wb") as err:
            given = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err, "cwd": directory, **more}
            self.process = subprocess.Popen(
                [str(one) for one in command], env={**inherited, **(environment or {})}, **given
            )
        self.pid = self.process.pid

    def __enter__(self) -> Running:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        if kind is not None:
            print(f"--- stdout\n{self.out}\n--- stderr\n{self.err}")

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def wait(self) -> int:
        """Wait for the exit code."""
        return self.process.wait(SECONDS)

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until the condition holds; fail if the process ends first."""

        def look() -> bool:
            ended = self.process.poll() is not None
            if condition():
                return True
            assert not ended, f"ended with {self.process.returncode} before {what}:\n{self.out}\n{self.err}"
            return False

        wait_until(look, what, SECONDS)

    def wait_for_words(self, words: str) -> None:
        """Wait until these words are on standard error."""
        self.wait_until(lambda: words in self.err, f"{words!r} on stderr")


def penstock(directory: Path, *arguments: object, **more: Any) -> Running:
    """Run the command line."""
    return Running(directory, sys.executable, "-m", "penstock.cli", *arguments, **more)


class Gate:
    """A gate at which handlers wait until it is opened. In an app: `open(gate).close()`."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._path = path
        self._end: int | None = None

    def open(self) -> None:
        """Let all handlers through from now on."""
        self._end = os.open(self._path, os.O_RDWR)

    def close(self) -> None:
        if self._end is not None:
            os.close(self._end)


@contextmanager
def watching(*pids: int) -> Iterator[Callable[[], None]]:
    """Watch processes that are not our children; give a function that waits until all have ended."""
    descriptors = [os.pidfd_open(pid) for pid in pids]

    def wait() -> None:
        for pid, descriptor in zip(pids, descriptors, strict=True):
            ended, _, _ = select.select([descriptor], [], [], SECONDS)
            assert ended, f"process {pid} still runs"

    try:
        yield wait
    finally:
        for descriptor in descriptors:
            os.close(descriptor)

"""The processes of the demo: workers and producers that are started, killed, frozen, replaced and stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from penstock.testing.servers.children import children_of

_STOP_SECONDS: Final = 10.0
_WORKER, _PRODUCER = "penstock.cli.demo.chaos.worker", "penstock.cli.demo.chaos.producer"


@dataclass(slots=True)
class Member:
    """One place in the crew: whoever has it now."""

    name: str
    command: Sequence[str]
    out: Path
    process: subprocess.Popen[bytes] | None = None
    frozen: bool = False
    lost: int = 0  # times it ended by itself

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        if self.alive:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def freeze(self) -> None:
        self.signal(signal.SIGSTOP)
        self.frozen = True

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)
        self.frozen = False

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()
        self.process, self.frozen = None, False

    def last_words(self, most: int = 60) -> str:
        """The last line of its standard error."""
        lines = self.out.with_suffix(".err").read_text(errors="replace").splitlines()
        return lines[-1][:most] if lines else "it said nothing"

    def kill_a_handler(self) -> bool:
        """Kill a process in which handlers run, and not the worker; False if there is none."""
        handlers = children_of(self.pid) if self.alive else []
        for pid in handlers[:1]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return bool(handlers)


class Crew:
    """All workers and producers on one log. Their output goes to files; they end with this process."""

    def __init__(self, directory: Path, url: str, stream: str, seed: int, workers: int, producers: int) -> None:
        self._directory = directory
        self._environment = {**os.environ, "PENSTOCK_URL": url}
        parent = str(os.getpid())
        self.workers = [self._member(f"worker {one}", _WORKER, stream, parent) for one in range(1, workers + 1)]
        self.producers = [
            self._member(f"producer {one}", _PRODUCER, stream, str(seed), str(one), parent)
            for one in range(1, producers + 1)
        ]

    def _member(self, name: str, module: str, *arguments: str) -> Member:
        return Member(name, (sys.executable, "-m", module, *arguments), self._directory / name.replace(" ", "-"))

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop([*self.workers, *self.producers])

    def fill(self, members: Sequence[Member]) -> list[Member]:
        """Start whoever is missing; returns those that had ended by themselves."""
        lost = []
        for one in members:
            if one.process is not None and one.process.poll() is not None:
                one.lost += 1
                lost.append(one)
            if not one.alive:
                self._start(one)
        return lost

    def _start(self, one: Member) -> None:
        with _appending(one.out, "out") as out, _appending(one.out, "err") as err:
            one.process = subprocess.Popen(
                one.command,
                env=self._environment,
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,  # Ctrl-C is for the demo, which stops them in its own way
            )
        one.frozen = False

    def stop(self, members: Sequence[Member]) -> None:
        """Ask them to stop, then insist."""
        for one in members:
            one.thaw()
            one.signal(signal.SIGTERM)
        for one in members:
            if one.process is not None:
                with suppress(subprocess.TimeoutExpired):
                    one.process.wait(_STOP_SECONDS)
            one.kill()

    def acknowledged(self) -> list[int]:
        """How many orders each producer was told are stored."""
        return [_last_number(one.out.with_suffix(".out")) + 1 for one in self.producers]


def _appending(path: Path, kind: str) -> IO[bytes]:
    return path.with_suffix(f".{kind}").open("ab")


def _last_number(path: Path) -> int:
    lines = path.read_text(encoding="ascii").splitlines() if path.exists() else []
    return max(map(int, lines), default=-1)

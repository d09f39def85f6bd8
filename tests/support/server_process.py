"""A server in a process of its own, on a free port, that ends with the tests."""

from __future__ import annotations

import signal
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.waiting import wait_until


class ServerProcess:
    """Starts on `with`. After `kill()` or `stop()`, `start()` brings it back on the same port with the same files."""

    def __init__(self) -> None:
        self.port = free_port()
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-server-")
        self.folder = Path(self._folder.name)
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> Sequence[str]:
        """The command line of the server."""
        raise NotImplementedError

    def start(self) -> None:
        """Return when it accepts connections."""
        with (self.folder / "log").open("ab") as log:
            command = ("setpriv", "--pdeathsig", "KILL", *self.command())
            self._process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)
        wait_until(self.answers, f"{type(self).__name__} to answer")

    def answers(self) -> bool:
        """Whether it accepts connections."""
        assert self._process is not None and self._process.poll() is None, (self.folder / "log").read_text()
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def kill(self) -> None:
        """End it without notice."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it in its own way."""
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        """Let it answer nothing until `resume`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        tasks = Path(f"/proc/{self._process.pid}/task")
        wait_until(lambda: all(_state(one) == "T" for one in tasks.iterdir()), "the server to stand still")

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.send_signal(signal.SIGCONT)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._folder.cleanup()


def _state(task: Path) -> str:
    """What a thread does, in Linux' letters."""
    return (task / "stat").read_text().rpartition(")")[2].split()[0]


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])

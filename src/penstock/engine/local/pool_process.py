"""A pool process as the foreground process sees it, and the messages between the two."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypedDict

from penstock.core.observe import Observed
from penstock.engine.isolation import wire
from penstock.engine.isolation.process import Died

MAIN = "penstock.engine.local.pool_main"
_LAST_WORDS_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message to a process: what to run. Not an argument, because a URL may hold a password."""

    app: str  # for load_object
    kind: str  # the class of apps, by name: it lives in a higher layer
    url: str | None
    groups: Sequence[str]
    until_drained: bool
    path: Sequence[str]
    arguments: Sequence[str]
    run: int | None = None  # the run's row in `runs`
    types: Sequence[str] = ()  # of jobs
    concurrency: int | None = None  # instead of what these types declare
    ingest: bool = False  # from the app's sources, too
    observed: bool = False  # somebody counts what happens, so report it


class Message(TypedDict, total=False):
    """A message from a pool process."""

    groups: dict[str, dict[str, int]]  # counters
    paused: dict[str, str]
    stopping: bool  # it was asked to stop
    warning: str
    level: int  # of the warning
    fields: dict[str, object]  # of the warning
    observed: Observed  # what observers of the foreground process are to hear
    counted: Observed  # what those hear who count what the whole pool does
    ended: bool  # the last message
    asked: bool  # it ended because it was asked to
    error: tuple[str, str]  # it ended because of this: code and message


class PoolProcess:
    """One pool process. It has its own session, so that Ctrl-C reaches only the foreground process."""

    def __init__(self, hello: Hello, tell: Callable[[PoolProcess, Message | Died], None]) -> None:
        """Start it; `tell` is called from other threads."""
        self.groups: dict[str, dict[str, int]] = {}
        self.paused: dict[str, str] = {}
        self.begun = False
        self.stopping = False
        self.last: Message | None = None
        self._began = time.monotonic()
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", MAIN, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self.pid = self._child.pid
        threading.Thread(target=self._watch, args=(tell,), daemon=True).start()
        with suppress(OSError):  # it died at once, which `_watch` reports
            wire.send(self._socket, hello)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def stop(self) -> None:
        """Ask it to stop, by closing our side of the socket."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def kill(self) -> None:
        if self._child.returncode is None:  # not reaped yet, so the pid is still its own
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def _watch(self, tell: Callable[[PoolProcess, Message | Died], None]) -> None:
        """Pass on its messages, then its death. Do not wait for the socket: its own children may keep it open."""

        def listen() -> None:
            with self._socket, suppress(OSError):
                while (message := wire.receive(self._socket)) is not None:
                    tell(self, message[0])

        listening = threading.Thread(target=listen, daemon=True)
        listening.start()
        status = self._child.wait()
        listening.join(_LAST_WORDS_SECONDS)
        tell(self, Died(status))

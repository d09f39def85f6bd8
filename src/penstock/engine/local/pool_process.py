"""A process of the pool as the foreground process sees it, and what the two say to each other."""

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

from penstock.engine.isolation import wire
from penstock.engine.isolation.process import Died

MAIN = "penstock.engine.local.pool_main"
_LAST_WORDS_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message to a process: what it is for. It is no argument, because a URL may hold a password."""

    app: str  # as load_object takes it
    kind: str  # the class of an app: this layer is below the one that defines it
    url: str | None
    groups: Sequence[str]
    until_drained: bool
    path: Sequence[str]
    arguments: Sequence[str]
    run: int | None = None  # the row of the whole run


class Message(TypedDict, total=False):
    """One message from a process."""

    groups: dict[str, dict[str, int]]  # counters, as of now
    paused: dict[str, str]
    stopping: bool  # it was told to stop
    warning: str
    ended: bool  # nothing follows
    asked: bool  # it has ended because it was told to
    error: tuple[str, str]  # it has ended because of this: code and message


class PoolProcess:
    """One process. It has its own session, so that the terminal's Ctrl-C reaches the foreground process alone."""

    def __init__(self, hello: Hello, tell: Callable[[PoolProcess, Message | Died], None]) -> None:
        """`tell` is called by other threads."""
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
        with suppress(OSError):  # it is gone already, as will be told
            wire.send(self._socket, hello)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def stop(self) -> None:
        """Tell it to stop, by the end of what we send."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def kill(self) -> None:
        if self._child.returncode is None:  # not yet reaped, so the number is still its own
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def _watch(self, tell: Callable[[PoolProcess, Message | Died], None]) -> None:
        """Pass on what it says, and then that it is gone; what it has started may keep the socket open for longer."""

        def listen() -> None:
            with self._socket, suppress(OSError):
                while (message := wire.receive(self._socket)) is not None:
                    tell(self, message[0])

        listening = threading.Thread(target=listen, daemon=True)
        listening.start()
        status = self._child.wait()
        listening.join(_LAST_WORDS_SECONDS)
        tell(self, Died(status))

"""A handler process as the engine sees it: start, feed, watch, kill."""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.core.limits import ON_STOP_SECONDS
from penstock.core.log_fields import about
from penstock.engine.isolation import wire
from penstock.engine.isolation.child import Ready
from penstock.engine.isolation.marks import Marks
from penstock.errors import HandlerUnreachable, StartFailed

logger = logging.getLogger("penstock")
START_SECONDS = 120.0
START_TRIES = 3  # of a process that is killed while it loads its handlers for the first time
_STOP_SECONDS = 2.0
_LOOK_SECONDS = 0.5
_READ = 1 << 18
_PAGE = os.sysconf("SC_PAGE_SIZE")
_ROOT = str(Path(__file__).resolve().parents[2])


@dataclass(frozen=True, slots=True)
class Died:
    """The process has ended."""

    status: int  # Popen.returncode: negative for a signal

    def __str__(self) -> str:
        if self.status >= 0:
            return f"the process exited with status {self.status}"
        try:
            name = signal.Signals(-self.status).name
        except ValueError:
            name = f"signal {-self.status}"
        more = " (out of memory?)" if -self.status == signal.SIGKILL else ""
        return f"the process was killed by {name}{more}"


class HandlerProcess:
    """One child process. Use it from one thread only: the child dies with the thread that started it."""

    entry = "penstock.engine.isolation.child"  # the module whose `main` it runs

    def __init__(self, hello: Any, marks: Marks) -> None:
        assert marks.descriptor is not None
        ours, theirs = socket.socketpair()
        with theirs:
            self._child = subprocess.Popen(
                [
                    sys.executable,
                    "-P",  # do not import from the working directory
                    "-c",
                    f"import sys; sys.path.insert(0, {_ROOT!r}); from {self.entry} import main; "
                    f"main({theirs.fileno()}, {marks.descriptor}, {os.getpid()})",
                ],
                pass_fds=(theirs.fileno(), marks.descriptor),
                start_new_session=True,
                stdin=subprocess.DEVNULL,
            )
        self._socket = ours
        self._socket.setblocking(False)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._frames = wire.Frames()
        self._outgoing: deque[memoryview] = deque()
        self._incoming: deque[Any] = deque()
        self.pid = self._child.pid
        self.killed_at_start = False  # by a signal: whoever sent it, its handlers may be fine
        self._stop_seconds = _STOP_SECONDS + (ON_STOP_SECONDS if hello.around.on_stop else 0.0)
        self.send(hello)

    def wait_ready(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Return when the handlers are loaded; `HandlerUnreachable` if that fails or takes too long.

        `meanwhile` is called now and then until they are.
        """
        give_up = time.monotonic() + START_SECONDS
        while True:
            message = self.pump(0.5)
            meanwhile()
            if isinstance(message, Ready) and message.failure is None:
                return
            if isinstance(message, Ready) and message.failure is not None:
                self.stop()
                if message.hook is not None:
                    raise StartFailed(message.hook)
                raise HandlerUnreachable(
                    f"The handler process cannot load its handlers: {message.failure.code}: {message.failure.message}."
                )
            if isinstance(message, Died):
                self.killed_at_start = message.status < 0
                self.stop()
                raise HandlerUnreachable(f"The handler process does not start: {message}.")
            meanwhile()
            if time.monotonic() > give_up:
                self.kill()
                raise HandlerUnreachable(f"The handler process did not load its handlers within {START_SECONDS:g} s.")

    def send(self, header: Any, body: Any = b"") -> None:
        """Queue a message; `pump` writes it."""
        self._outgoing.extend(wire.frame(header, body))

    def fileno(self) -> int:
        """The socket to wait on."""
        return self._socket.fileno()

    def pump(self, seconds: float) -> Any:
        """Send and receive until a message arrives, the process ends (`Died`), or the time is up (None)."""
        until = time.monotonic() + seconds
        while not self._incoming:
            left = max(0.0, until - time.monotonic())
            self._poll.modify(self._socket, select.POLLIN | (select.POLLOUT if self._outgoing else 0))
            ready = sum(happened for _, happened in self._poll.poll(1000 * left))
            try:
                if ready & ~select.POLLOUT:
                    data = self._socket.recv(_READ)
                    if not data:
                        return self._ended()
                    self._incoming.extend(header for header, _ in self._frames.feed(data))
                if ready & select.POLLOUT:
                    self._write()
            except Exception:  # closed, or not a message: its memory is corrupt
                return self.kill()
            if not ready and not left:
                return None
        return self._incoming.popleft()

    @property
    def sending(self) -> bool:
        """Whether a message has not been written yet."""
        return bool(self._outgoing)

    def flush(self) -> None:
        """Write as much as the socket takes now."""
        with suppress(OSError):  # closed: `pump` finds out
            self._write()

    def _write(self) -> None:
        while self._outgoing:
            piece = self._outgoing[0]
            try:
                sent = self._socket.send(piece)
            except BlockingIOError:
                return
            if sent == len(piece):
                self._outgoing.popleft()
            else:
                self._outgoing[0] = piece[sent:]

    def gone(self) -> bool:
        """Whether it has ended."""
        return self._child.poll() is not None

    def memory_mb(self) -> float:
        """Return the resident memory now; 0 if unknown."""
        try:
            pages = int(Path(f"/proc/{self.pid}/statm").read_bytes().split()[1])
        except (OSError, IndexError, ValueError):
            return 0.0
        return pages * _PAGE / 2**20

    def kill(self) -> Died:
        """Kill it and what it started; one that has already ended keeps its status."""
        if self._child.returncode is None:  # not reaped yet, so the pid is still its own
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        self._socket.close()
        return Died(self._child.wait())

    def _ended(self) -> Died:
        """Wait a moment after it closed the connection: its own exit status says more than SIGKILL."""
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(_STOP_SECONDS)
        return self.kill()

    def stop(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Close the connection, let it exit, and kill it if it does not."""
        self._socket.close()
        give_up = time.monotonic() + self._stop_seconds
        while time.monotonic() < give_up:
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(_LOOK_SECONDS)
                break
            meanwhile()
        self.kill()


class Loading:
    """Tells a mistake from bad luck when a process does not load its handlers.

    Handlers that never loaded are a mistake. Handlers that did may miss something for a moment, and any process may be
    killed while it loads: that is no reason to stop an engine.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._loaded = False
        self._tries = 0

    def succeeded(self) -> None:
        """Note that they have loaded."""
        self._loaded = True

    def failed(self, process: HandlerProcess, error: HandlerUnreachable) -> None:
        """Raise the error of a mistake; log any other, after which loading is tried again."""
        self._tries += 1
        if not self._loaded and (not process.killed_at_start or self._tries >= START_TRIES):
            raise error
        fields = about("unloadable", self._name, code=error.code)
        logger.warning("%s: %s Retrying.", self._name, error.message, extra=fields)

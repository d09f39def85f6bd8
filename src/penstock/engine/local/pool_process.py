"""A member as the foreground process sees it, and what the two say to each other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TypedDict

from penstock.engine.isolation.process import Died

_LAST_WORDS_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Hello:
    """The first line to a member: what it is for. It is no argument, because a URL may hold a password."""

    app: str  # as load_object takes it
    kind: str  # the class of an app: this layer is below the one that defines it
    url: str | None
    groups: Sequence[str]
    until_drained: bool
    path: Sequence[str]
    arguments: Sequence[str]
    run: int | None = None  # the row of the whole run


class Message(TypedDict, total=False):
    """One line from a member."""

    groups: dict[str, dict[str, int]]  # counters, as of now
    paused: dict[str, str]
    stopping: bool  # it has heard that it is to stop
    warning: str
    ended: bool  # nothing follows
    asked: bool  # it has ended because it was told to
    error: tuple[str, str]  # it has ended because of this: code and message


class MemberProcess:
    """One process. It has its own session, so that the terminal's Ctrl-C reaches the foreground process alone."""

    def __init__(self, hello: Hello, tell: Callable[[MemberProcess, Message | Died], None]) -> None:
        """`tell` is called by other threads."""
        self.groups: dict[str, dict[str, int]] = {}
        self.paused: dict[str, str] = {}
        self.begun = False
        self.stopping = False
        self.last: Message | None = None
        self._began = time.monotonic()
        reading, writing = os.pipe()
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", "penstock.engine.local.pool_main", str(writing)],
                stdin=subprocess.PIPE,
                pass_fds=(writing,),
                start_new_session=True,
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        self.pid = self._child.pid
        threading.Thread(target=self._watch, args=(reading, tell), daemon=True).start()
        assert self._child.stdin is not None
        with suppress(OSError):  # it is gone already, as will be told
            self._child.stdin.write(json.dumps(asdict(hello)).encode() + b"\n")
            self._child.stdin.flush()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def stop(self) -> None:
        """Tell it to stop, by the end of its input."""
        assert self._child.stdin is not None
        with suppress(OSError):
            self._child.stdin.close()

    def kill(self) -> None:
        if self._child.returncode is None:  # not yet reaped, so the number is still its own
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def _watch(self, reading: int, tell: Callable[[MemberProcess, Message | Died], None]) -> None:
        """Pass on what it says, and then that it is gone; what it has started may keep the pipe open for longer."""

        def listen() -> None:
            with os.fdopen(reading, "rb") as lines:
                for line in lines:
                    if line.endswith(b"\n"):  # else it died in the middle of it
                        tell(self, json.loads(line))

        listening = threading.Thread(target=listen, daemon=True)
        listening.start()
        status = self._child.wait()
        listening.join(_LAST_WORDS_SECONDS)
        tell(self, Died(status))

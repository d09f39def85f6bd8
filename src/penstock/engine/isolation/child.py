"""The process a handler runs in. It holds no lease and no connection, so its death costs only what was in flight."""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import importlib
import os
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from penstock.core.batch import Claimed, Events
from penstock.core.columns import unpack
from penstock.core.lease import Failure
from penstock.core.signals import failure_of
from penstock.declare.portable import PortableSubscription
from penstock.engine import tracing
from penstock.engine.handlers.batch import runner_for
from penstock.engine.handlers.life import Life
from penstock.engine.handlers.runner import Part, Runner
from penstock.engine.handlers.state import LeaseState, Stored
from penstock.engine.isolation import wire
from penstock.engine.isolation.marks import Marks
from penstock.errors import StartFailed

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Ready:
    """The reply to the subscription: the handlers are loaded, or why not."""

    failure: Failure | None = None
    hook: str | None = None  # what an `on_start` raised


@dataclass(frozen=True, slots=True)
class Begin:
    """The start of a lease: its token and state."""

    token: int
    state: dict[str, dict[str, Stored]]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some events of the lease, in the body of the message."""

    begin: Begin | None
    base: int
    kind: str
    stream: str
    claim: Claimed | None


def main(connection_fd: int, marks_fd: int, parent: int) -> None:
    """Serve one engine until it closes the connection or dies."""
    belong_to(parent)
    with socket.socket(fileno=connection_fd) as connection:
        first = wire.receive(connection)
        if first is None:
            return
        hello: PortableSubscription = first[0]
        sys.path[:] = hello.path
        sys.argv[:] = hello.arguments
        try:
            runner = runner_for(subscription := hello.load())
            life = Life(subscription.around, runner.in_loop)
            tracing.start_if_wanted()
            life.start()
        except BaseException as error:
            wire.send(connection, not_ready(error))
            return
        marks = Marks(hello.policy.concurrency, hello.policy.batch_size, marks_fd)
        for name in hello.modules:
            with suppress(ImportError):
                importlib.import_module(name)
        wire.send(connection, Ready())
        gc.freeze()  # modules are never garbage: keep the collector from scanning them
        _serve(connection, runner, marks)
        life.stop()
        tracing.flush()
        runner.close()


def not_ready(error: BaseException) -> Ready:
    """Make the reply of a process that cannot run its handlers."""
    return Ready(failure_of(error), error.message if isinstance(error, StartFailed) else None)


def _serve(connection: socket.socket, runner: Runner, marks: Marks) -> None:
    state, held, token = LeaseState(), dict[str, int](), 0
    while (message := wire.receive(connection)) is not None:
        chunk: Chunk = message[0]
        if chunk.begin is not None:
            state, held, token = LeaseState.of_frozen(chunk.begin.state), {}, chunk.begin.token
            runner.begin()
        events = Events(unpack(chunk.kind, message[1]), chunk.stream, chunk.claim)
        wire.send(connection, runner.run(Part(events, chunk.base, marks, state, held, token)))


def belong_to(parent: int) -> None:
    """Die with the engine, and ignore the signals meant for it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    faulthandler.enable()
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        with suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")  # kill this process before the engine
    if os.getppid() != parent:  # the engine died before prctl
        os._exit(0)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))

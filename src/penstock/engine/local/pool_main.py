"""A member: one of several processes that run the same app, for the foreground process that started it.

Its first line of input says what to run; the end of its input, which the death of the foreground process brings about,
too, says to stop. What it has to say goes to a pipe of its own, as JSON lines: standard output is the handlers'.
"""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from penstock.declare.load import load_object
from penstock.declare.subscription import Subscription
from penstock.engine.foreground import Orders, stopping_by_signal
from penstock.engine.local.engine import LocalEngine
from penstock.engine.local.pool_process import Hello, Message
from penstock.engine.run_row import sharing
from penstock.errors import PenstockError
from penstock.log.open import open_log

REPORT_SECONDS = 0.3
_WARNING_LENGTH = 2_000
logger = logging.getLogger("penstock")


class Declared(Protocol):
    """The part of an app that a member needs."""

    def chosen(self, groups: Sequence[str] | None = None) -> list[Subscription]:
        """The subscriptions of these groups."""


class Reporter(logging.Handler):
    """Writes to the foreground process; once that is gone, to nobody."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        os.set_inheritable(descriptor, False)
        self._descriptor = descriptor
        self._writing = threading.Lock()

    def send(self, message: Message) -> None:
        rest = json.dumps(message).encode() + b"\n"
        with self._writing, suppress(OSError):
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]

    def emit(self, record: logging.LogRecord) -> None:
        """Warnings are shown by the foreground process, which knows what else is on the screen."""
        self.send({"warning": record.getMessage()[:_WARNING_LENGTH]})


def main(descriptor: int) -> int:
    """Run one member from its first line to its last; returns the exit code."""
    reporter = Reporter(descriptor)
    control = _standard_input()
    first = control.readline()
    if not first:
        return 0
    hello = Hello(**json.loads(first))
    sys.path[:], sys.argv[:] = hello.path, hello.arguments
    try:
        asked = _run(hello, control, reporter)
    except PenstockError as error:
        reporter.send({"ended": True, "error": (error.code, error.message)})
        return 1
    reporter.send({"ended": True, "asked": asked})
    return 0


def _standard_input() -> io.FileIO:
    """Take it away from handlers, which get an empty one."""
    ours = io.FileIO(os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return ours


def _run(hello: Hello, control: io.FileIO, reporter: Reporter) -> bool:
    """Work until stopped or drained; returns whether it was stopped."""
    app: Declared = load_object(hello.app, load_object(hello.kind, type))
    if not logger.hasHandlers():  # an app that has its own has said where warnings go
        logger.addHandler(reporter)
    asked = threading.Event()
    with open_log(hello.url) as log:
        engine = LocalEngine(log, app.chosen(hello.groups), until_drained=hello.until_drained, run=hello.run)
        orders = Orders()

        def stop() -> None:
            engine.stop()
            asked.set()

        def report() -> None:
            reporter.send({"groups": engine.snapshot(), "paused": dict(engine.paused), "stopping": asked.is_set()})

        threading.Thread(target=_at_end, args=(control, stop), name="penstock-control", daemon=True).start()
        with stopping_by_signal(stop), sharing(log, hello.run, orders.obey):
            engine.start()
            orders.give_to(engine, engine.stop)
            try:
                report()
                while not engine.wait(REPORT_SECONDS):
                    report()
            finally:
                report()
    return asked.is_set()


def _at_end(control: io.FileIO, stop: Callable[[], Any]) -> None:
    with suppress(OSError):
        control.read()
    stop()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))

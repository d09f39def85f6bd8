"""The main program of a pool process: one of several that run the same app.

The first message on its socket says what to run. When the socket closes, also because the foreground process died, it
stops. It reports on the same socket, because standard output belongs to the handlers.
"""

from __future__ import annotations

import logging
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from penstock.core.log_fields import fields_of
from penstock.core.observe import (
    EventsFailed,
    LeaseEnded,
    Observed,
    ProcessesDied,
    RunProgressed,
    SourceAway,
    StoreAway,
    everyone,
)
from penstock.declare.ingest import Ingest
from penstock.declare.job import JobType, ScheduledJob, scheduled
from penstock.declare.load import load_object
from penstock.declare.subscription import Subscription
from penstock.engine import tracing
from penstock.engine.foreground import Orders, stopping_by_signal
from penstock.engine.isolation import wire
from penstock.engine.local.engine import LocalEngine
from penstock.engine.local.pool_process import Hello, Message
from penstock.engine.run_row import sharing
from penstock.errors import PenstockError
from penstock.log.log import Log
from penstock.log.open import open_log

REPORT_SECONDS = 0.3
_WARNING_LENGTH = 2_000
logger = logging.getLogger("penstock")


class Declared(Protocol):
    """The part of an app that a pool process needs."""

    schedules: list[ScheduledJob]
    ingests: list[Ingest]

    def chosen(self, groups: Sequence[str] | None = None) -> list[Subscription]:
        """Return the subscriptions of these groups."""

    def chosen_jobs(self, types: Sequence[str] | None = None, concurrency: int | None = None) -> list[JobType]:
        """Return the jobs of these types."""


class Reporter(logging.Handler):
    """A log handler that sends to the foreground process; silent once that is gone."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__()
        self._connection = connection
        self._writing = threading.Lock()

    def send(self, message: Message) -> None:
        """Send a message; thread-safe."""
        with self._writing, suppress(OSError):
            wire.send(self._connection, message)

    def observe(self, event: Observed) -> None:
        """Pass on what the foreground process cannot see: the counters tell it the rest."""
        if isinstance(event, ProcessesDied):
            self.send({"observed": event})

    def count(self, event: Observed) -> None:
        """Pass on what somebody counts, without the events of leases, which are many and large."""
        match event:
            case LeaseEnded():
                self.send({"counted": replace(event, events=None, counts=replace(event.counts, kept=()))})
            case ProcessesDied() | EventsFailed() | RunProgressed():
                pass
            case StoreAway() | SourceAway():
                self.send({"counted": replace(event, error=Exception(type(event.error).__name__))})
            case _:
                self.send({"counted": event})

    def emit(self, record: logging.LogRecord) -> None:
        """Let the foreground process print it: it knows what else is on the screen."""
        words = record.getMessage()[:_WARNING_LENGTH]
        self.send({"warning": words, "level": record.levelno, "fields": fields_of(record)})


def main(descriptor: int) -> int:
    """Run until stopped or drained; return the exit code."""
    with socket.socket(fileno=descriptor) as connection:
        connection.set_inheritable(False)
        first = wire.receive(connection)
        if first is None:
            return 0
        hello: Hello = first[0]
        reporter = Reporter(connection)
        sys.path[:], sys.argv[:] = hello.path, hello.arguments
        try:
            asked = _run(hello, connection, reporter)
        except PenstockError as error:
            reporter.send({"ended": True, "error": (error.code, error.message)})
            return 1
        reporter.send({"ended": True, "asked": asked})
        return 0


def _run(hello: Hello, connection: socket.socket, reporter: Reporter) -> bool:
    """Run until stopped or drained; return whether it was stopped."""
    app: Declared = load_object(hello.app, load_object(hello.kind, type))
    if not logger.hasHandlers():  # else the app has configured logging itself
        logger.addHandler(reporter)
    asked = threading.Event()
    with open_log(hello.url) as log:
        engine = _engine(log, app, hello)
        orders = Orders()
        everyone.subscribe(reporter.observe)
        if hello.observed:
            everyone.subscribe(reporter.count)
        tracing.start_if_wanted()

        def stop() -> None:
            engine.stop()
            asked.set()

        def report() -> None:
            reporter.send({"groups": engine.snapshot(), "paused": dict(engine.paused), "stopping": asked.is_set()})

        threading.Thread(target=_at_end, args=(connection, stop), name="penstock-control", daemon=True).start()
        with stopping_by_signal(stop), sharing(log, hello.run, orders.obey):
            engine.start()
            orders.give_to(engine, engine.stop)
            try:
                report()
                while not engine.wait(REPORT_SECONDS):
                    report()
            finally:
                report()
    tracing.flush()
    return asked.is_set()


def _engine(log: Log, app: Declared, hello: Hello) -> LocalEngine:
    """Make the engine of the groups and types that were asked for; of either it may be none."""
    subscriptions = app.chosen(hello.groups) if hello.groups else []
    jobs = app.chosen_jobs(hello.types, hello.concurrency) if hello.types else []
    schedules = scheduled(app.schedules, jobs)
    engine = LocalEngine(log, subscriptions, jobs, schedules, until_drained=hello.until_drained, run=hello.run)
    engine.ingest(app.ingests if hello.ingest else [])
    return engine


def _at_end(connection: socket.socket, stop: Callable[[], Any]) -> None:
    with suppress(OSError):
        wire.receive(connection)
    stop()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))

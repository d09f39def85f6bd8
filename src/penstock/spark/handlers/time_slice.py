"""A time slice: a Spark task that works for a group of handlers for some seconds. It is sent no lease.

It claims, handles and settles on its own connection. Whatever Spark does with the task (retry, run twice, cancel), each
claim has its own token and counts as its own attempt.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from penstock.core.lease import Idle
from penstock.core.observe import Observers, everyone
from penstock.declare.portable import PortableSubscription
from penstock.engine.counters import Counters
from penstock.engine.failure_log import FailureLog
from penstock.engine.heartbeat import Heartbeat
from penstock.engine.thread_switch import quick_turns
from penstock.engine.worker import Worker
from penstock.errors import PenstockError
from penstock.log.log import Log
from penstock.log.open import open_log
from penstock.spark import secrets
from penstock.spark.handlers.control import Caller, Counts, Line

_KEPT = 4  # groups whose processes and connections a Python worker keeps between slices
_REPORT_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a slice is given: a group, and how long to work for it."""

    number: int
    key: str  # of the group, the same for all its slices in a run
    url: str  # without a password
    subscription: PortableSubscription
    seconds: float
    patience: float  # seconds without work before the slice ends
    line: Line


@dataclass(frozen=True, slots=True)
class SliceReport:
    """What a slice did, and why it ended early, if it did."""

    counts: Counts
    idle: Idle | None = None  # the last claim, if it found nothing
    error: tuple[str, str] | None = None  # code and message of an error that stops the engine


def work(tickets: Iterable[Ticket]) -> Iterator[SliceReport]:
    """Run the slices of a Spark task."""
    for ticket in tickets:
        yield run_slice(ticket)


def run_slice(ticket: Ticket) -> SliceReport:
    """Work for a group until time is up, there is nothing to do, or the driver says stop."""
    counters = Counters()
    try:
        kept = _warm(ticket)
        ending = _Ending(ticket, kept.worker)
        kept.worker.observers = Observers(counters, kept.failures, parent=everyone)
        kept.worker.until = ending
        kept.worker.again()
        caller = Caller(ticket.line, ticket.number, kept.worker.stop)
        with _Reporting(caller, counters), quick_turns():
            kept.worker.work()
    except PenstockError as error:
        _forget(ticket)
        return SliceReport(counters.snapshot(), error=(error.code, error.message))
    except BaseException:
        _forget(ticket)
        raise
    return SliceReport(counters.snapshot(), kept.worker.idle)


class _Ending:
    """The check, between leases and while idle, whether a slice ends."""

    def __init__(self, ticket: Ticket, worker: Worker) -> None:
        self._ticket = ticket
        self._worker = worker
        self._end = time.monotonic() + ticket.seconds
        self._idle_since: float | None = None

    def __call__(self) -> bool:
        now = time.monotonic()
        if self._worker.idle is None:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        waited = 0.0 if self._idle_since is None else now - self._idle_since
        return now >= self._end or waited > self._ticket.patience


class _Reporting:
    """A thread that sends the counts to the driver."""

    def __init__(self, caller: Caller, counters: Counters) -> None:
        self._caller = caller
        self._counters = counters
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-telling", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()
        self._caller.close()

    def _run(self) -> None:
        while not self._ended.wait(_REPORT_SECONDS):
            self._caller.report(self._counters.snapshot())


# --- what is kept between slices -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Kept:
    log: Log
    heartbeat: Heartbeat
    worker: Worker
    failures: FailureLog = field(default_factory=FailureLog)

    def close(self) -> None:
        self.worker.close()
        self.heartbeat.stop()
        self.log.close()


_kept: OrderedDict[tuple[int, str], _Kept] = OrderedDict()  # by pid: a forked process must not use its parent's


def _warm(ticket: Ticket) -> _Kept:
    key = (os.getpid(), ticket.key)
    found = _kept.get(key)
    if found is None:
        found = _kept[key] = _made(ticket)
    _kept.move_to_end(key)
    while len(_kept) > _KEPT:
        _, oldest = _kept.popitem(last=False)
        oldest.close()
    return found


def _made(ticket: Ticket) -> _Kept:
    known = set(sys.path)
    sys.path[:0] = [one for one in ticket.subscription.path if one not in known]
    subscription = ticket.subscription.load()
    log = open_log(secrets.reveal(ticket.url), migrate=False)
    log.store.warm()
    heartbeat = Heartbeat()
    heartbeat.start()
    gc.freeze()  # modules are never garbage: keep the collector from scanning them
    return _Kept(log, heartbeat, Worker(log, subscription, f"{place()}/{subscription.group}", heartbeat, everyone))


def _forget(ticket: Ticket) -> None:
    found = _kept.pop((os.getpid(), ticket.key), None)
    if found is not None:
        found.close()


def place() -> str:
    """Return host, executor and pid: the `claimed_by` of a slice."""
    directory = Path.cwd()
    executor = os.environ.get("SPARK_EXECUTOR_ID")
    if executor is None and directory.parent.name.startswith("app-"):  # the folder of a standalone worker's executor
        executor = directory.name
    return f"{socket.gethostname()}/{executor or 'driver'}/{os.getpid()}"

"""A time slice: a Spark task that works for a group of handlers for some seconds. It is sent no lease.

It claims, handles and settles on its own connection. Whatever Spark does with the task (retry, run twice, cancel), each
claim has its own token and counts as its own attempt. What its run should do comes with every claim; a slice that has
heard nothing for a second asks. So no port is needed to stop it.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
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
from penstock.spark.logs import log_at

_ASK_SECONDS = 1.0  # without news of what the run should do, before a slice asks
_KEPT = 4  # groups whose handler processes a Python worker keeps between slices


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a slice is given: a group, and how long to work for it."""

    number: int
    key: str  # of the group, the same for all its slices in a run
    url: str  # without a password
    subscription: PortableSubscription
    seconds: float
    patience: float  # seconds without work before the slice ends
    run: int | None  # whose leases they are; None if the run has no row


@dataclass(frozen=True, slots=True)
class SliceReport:
    """What a slice did, and why it ended early, if it did."""

    counts: dict[str, int]
    idle: Idle | None = None  # what the last claim said, if the slice ended because there was nothing to do
    unwanted: bool = False  # the run should be quiet, or stop
    error: tuple[str, str] | None = None  # code and message of an error that stops the engine


def work(tickets: Iterable[Ticket]) -> Iterator[SliceReport]:
    """Run the slices of a Spark task, in a process of Spark's own."""
    _leave_signals_to_the_driver()
    for ticket in tickets:
        yield run_slice(ticket)


def run_slice(ticket: Ticket) -> SliceReport:
    """Work for a group until time is up, there is nothing to do, or the run should stop."""
    counters = Counters()
    try:
        kept = _warm(ticket)
        ending = _Ending(ticket, kept.worker)
        kept.worker.observers = Observers(counters, kept.failures, parent=everyone)
        kept.worker.until = ending
        kept.worker.follow = ending.follow
        kept.worker.again()
        with quick_turns(), ending.listening():
            kept.worker.work()
    except PenstockError as error:
        _forget(ticket)
        return SliceReport(counters.snapshot(), error=(error.code, error.message))
    except BaseException:
        _forget(ticket)
        raise
    return SliceReport(counters.snapshot(), kept.worker.idle if ending.tired else None, ending.unwanted)


def _leave_signals_to_the_driver() -> None:
    """A SIGTERM to all processes of a run is the driver's to handle: it stops its slices, which release their work."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


class _Ending:
    """The check, between leases and while idle, whether a slice ends."""

    def __init__(self, ticket: Ticket, worker: Worker) -> None:
        self._ticket = ticket
        self._worker = worker
        self._end = time.monotonic() + ticket.seconds
        self._idle_since: float | None = None
        self._heard = 0.0  # when it last heard what the run should do
        self.unwanted = False  # the run should be quiet, or stop
        self.tired = False  # there was nothing to do for too long

    def __call__(self) -> bool:
        now = time.monotonic()
        if self._worker.idle is None:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        self.tired = self._idle_since is not None and now - self._idle_since > self._ticket.patience
        return self.unwanted or self.tired or now >= self._end

    def follow(self, wanted: str) -> None:
        """Stop at once, or claim nothing new, if that is what the run should do."""
        self._heard = time.monotonic()
        if wanted == "stop":
            self._worker.stop()
        self.unwanted = wanted != "run"

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Ask what the run should do whenever claims have not told for a while: handlers may take long."""
        if self._ticket.run is None:
            yield
            return
        self._ask(self._ticket.run)
        over = threading.Event()
        thread = threading.Thread(target=self._listen, args=(self._ticket.run, over), name="penstock-orders")
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _listen(self, run: int, over: threading.Event) -> None:
        while not over.wait(max(0.0, self._heard + _ASK_SECONDS - time.monotonic())):
            if time.monotonic() >= self._heard + _ASK_SECONDS:
                self._ask(run)

    def _ask(self, run: int) -> None:
        self._heard = time.monotonic()
        with suppress(PenstockError):  # an outage is the worker's to report
            self.follow(self._worker.log.wanted_of_run(run) or "run")


# --- what is kept between slices -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Kept:
    heartbeat: Heartbeat
    worker: Worker
    failures: FailureLog = field(default_factory=FailureLog)

    def close(self) -> None:
        self.worker.close()
        self.heartbeat.stop()


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
    log = log_at(ticket.url)
    log.store.warm()
    heartbeat = Heartbeat()
    heartbeat.start()
    gc.freeze()  # modules are never garbage: keep the collector from scanning them
    name = f"{place()}/{subscription.group}"
    return _Kept(heartbeat, Worker(log, subscription, name, heartbeat, everyone, run_id=ticket.run))


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

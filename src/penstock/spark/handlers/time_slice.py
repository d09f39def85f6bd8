"""A time slice: a Spark task that works for a group of handlers, or for jobs, for some seconds. It is sent no lease.

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
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from penstock.core.lease import Idle
from penstock.core.observe import Observers, everyone
from penstock.declare.job import PortableJob
from penstock.declare.portable import PortableSubscription
from penstock.engine import tracing
from penstock.engine.counters import Counters
from penstock.engine.failure_log import FailureLog
from penstock.engine.heartbeat import Heartbeat
from penstock.engine.jobs.workers import JobWorkers
from penstock.engine.thread_switch import quick_turns
from penstock.engine.worker import Worker
from penstock.errors import PenstockError
from penstock.spark.handlers.ending import Ending, SliceWorker
from penstock.spark.logs import log_at

_KEPT = 4  # groups whose handler processes a Python worker keeps between slices


Work = PortableSubscription | tuple[PortableJob, ...]  # a group, or the job types of a queue


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a slice is given: what to work for, and how long."""

    number: int
    key: str  # of the group or queue, the same for all its slices in a run
    url: str  # without a password
    work: Work
    seconds: float
    patience: float  # seconds without work before the slice ends
    run: int | None  # whose leases they are; None if the run has no row


@dataclass(frozen=True, slots=True)
class SliceReport:
    """What a slice did, and why it ended early, if it did."""

    counts: dict[str, dict[str, int]]  # by the name of the group, or of the job type
    idle: Idle | None = None  # what the last claim said, if the slice ended because there was nothing to do
    unwanted: bool = False  # the run should be quiet, or stop
    error: tuple[str, str] | None = None  # code and message of an error that stops the engine


def work(tickets: Iterable[Ticket]) -> Iterator[SliceReport]:
    """Run the slices of a Spark task, in a process of Spark's own."""
    _leave_signals_to_the_driver()
    for ticket in tickets:
        yield run_slice(ticket)


def run_slice(ticket: Ticket) -> SliceReport:
    """Work until time is up, there is nothing to do, or the run should stop."""
    kept: Kept | None = None
    try:
        kept = _warm(ticket)
        ending = Ending(kept.worker, ticket.seconds, ticket.patience, ticket.run)
        kept.begin(ending)
        with quick_turns(), ending.listening():
            kept.worker.work()
    except PenstockError as error:
        _forget(ticket)
        return SliceReport({} if kept is None else kept.counts(), error=(error.code, error.message))
    except BaseException:
        _forget(ticket)
        raise
    report = SliceReport(kept.counts(), kept.worker.idle if ending.tired else None, ending.unwanted)
    if ending.stopped:
        _end_lives()
        tracing.flush()
    return report


def _leave_signals_to_the_driver() -> None:
    """A SIGTERM to all processes of a run is the driver's to handle: it stops its slices, which release their work."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


# --- what is kept between slices -------------------------------------------------------------------------------------


class Kept(Protocol):
    """A worker with its processes, and what it counts."""

    @property
    def worker(self) -> SliceWorker: ...
    @property
    def has_on_stop(self) -> bool: ...
    def begin(self, ending: Ending) -> None:
        """Get ready for a slice."""

    def counts(self) -> dict[str, dict[str, int]]:
        """Return what was done in the last slice."""

    def close(self) -> None: ...


@dataclass(slots=True)
class _KeptGroup:
    heartbeat: Heartbeat
    worker: Worker
    failures: FailureLog = field(default_factory=FailureLog)
    counters: Counters = field(default_factory=Counters)

    def begin(self, ending: Ending) -> None:
        self.counters = Counters()
        self.worker.observers = Observers(self.counters, self.failures, parent=everyone)
        self.worker.until = ending
        self.worker.follow = ending.follow
        self.worker.again()

    @property
    def has_on_stop(self) -> bool:
        return bool(self.worker.subscription.around.on_stop)

    def counts(self) -> dict[str, dict[str, int]]:
        return {self.worker.subscription.name: self.counters.snapshot()}

    def close(self) -> None:
        self.worker.close()
        self.heartbeat.stop()


@dataclass(slots=True)
class _KeptJobs:
    worker: JobWorkers
    before: dict[str, dict[str, int]] = field(default_factory=dict)

    def begin(self, ending: Ending) -> None:
        self.before = self.worker.counts()
        self.worker.until = ending
        self.worker.follow = ending.follow
        self.worker.again()

    @property
    def has_on_stop(self) -> bool:
        return self.worker.has_on_stop

    def counts(self) -> dict[str, dict[str, int]]:
        return {
            name: {what: count - self.before[name][what] for what, count in counts.items()}
            for name, counts in self.worker.counts().items()
        }

    def close(self) -> None:
        self.worker.close()


_kept: OrderedDict[tuple[int, str], Kept] = OrderedDict()  # by pid: a forked process must not use its parent's


def _warm(ticket: Ticket) -> Kept:
    key = (os.getpid(), ticket.key)
    found = _kept.get(key)
    if found is None:
        found = _kept[key] = _made(ticket)
    _kept.move_to_end(key)
    while len(_kept) > _KEPT:
        _, oldest = _kept.popitem(last=False)
        oldest.close()
    return found


def _made(ticket: Ticket) -> Kept:
    work = ticket.work
    known = set(sys.path)
    sys.path[:0] = [one for one in (work[0] if isinstance(work, tuple) else work).path if one not in known]
    made = _made_jobs(ticket, work) if isinstance(work, tuple) else _made_group(ticket, work)
    tracing.start_if_wanted()
    gc.freeze()  # modules are never garbage: keep the collector from scanning them
    return made


def _made_group(ticket: Ticket, work: PortableSubscription) -> Kept:
    subscription = work.load()
    log = log_at(ticket.url)
    log.store.warm()
    heartbeat = Heartbeat()
    heartbeat.start()
    name = f"{place()}/{subscription.group}"
    return _KeptGroup(heartbeat, Worker(log, subscription, name, heartbeat, everyone, run_id=ticket.run))


def _made_jobs(ticket: Ticket, work: tuple[PortableJob, ...]) -> Kept:
    jobs = [one.load() for one in work]
    return _KeptJobs(JobWorkers(log_at(ticket.url), jobs, place(), ticket.run))


def _forget(ticket: Ticket) -> None:
    found = _kept.pop((os.getpid(), ticket.key), None)
    if found is not None:
        found.close()


def _end_lives() -> None:
    """Let handlers call their `on_stop`, and send their traces, at the end of a run.

    Spark ends its Python workers without notice.
    """
    for key, one in [*_kept.items()]:
        if key[0] == os.getpid() and (one.has_on_stop or tracing.wanted()):
            del _kept[key]
            one.close()


def place() -> str:
    """Return host, executor and pid: the `claimed_by` of a slice."""
    directory = Path.cwd()
    executor = os.environ.get("SPARK_EXECUTOR_ID")
    if executor is None and directory.parent.name.startswith("app-"):  # the folder of a standalone worker's executor
        executor = directory.name
    return f"{socket.gethostname()}/{executor or 'driver'}/{os.getpid()}"

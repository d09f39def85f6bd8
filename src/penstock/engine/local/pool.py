"""Run one app in several processes: start them, add up their counters, replace those that die."""

from __future__ import annotations

import logging
import math
import os
import queue
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from penstock.core.log_fields import about
from penstock.core.observe import RunProgressed, everyone
from penstock.core.observe import pool as counting
from penstock.declare.job import JobType
from penstock.declare.subscription import Subscription
from penstock.engine.counters import NAMES
from penstock.engine.foreground import StopNotice, stopping_by_signal
from penstock.engine.isolation.process import Died
from penstock.engine.local.pool_process import Hello, Message, PoolProcess
from penstock.engine.outcome import Outcome, PoolOutcome, check_processes
from penstock.engine.run_row import running
from penstock.errors import AWAY, HandlerUnreachable, PenstockError, all_errors
from penstock.log.open import open_log

_TICK = 0.2
_RESTART_SECONDS = (0.5, 30.0)  # the pause before a replacement: first and longest; it doubles
_STEADY_SECONDS = 60.0  # after a life this long the pause starts over
_QUIET_DEATHS = 5  # in a row, before the first report, before giving up
logger = logging.getLogger("penstock")


def run_pool(
    reference: str,
    kind: type,
    subscriptions: Sequence[Subscription],
    jobs: Sequence[JobType] = (),
    *,
    processes: int,
    concurrency: int | None = None,
    ingest: bool = False,
    url: str | None = None,
    until_drained: bool = False,
    name: str | None = None,
) -> Outcome:
    """Run an app until a signal or an operator stops it, or until drained. Signals need the main thread.

    Pool processes load the app by `reference` and serve the groups of these subscriptions, and these jobs.
    """
    names = [*(one.name for one in subscriptions), *(one.name for one in jobs)]
    hello = Hello(
        reference,
        f"{kind.__module__}:{kind.__qualname__}",
        url,
        sorted({one.group for one in subscriptions}),
        until_drained,
        [str(one) for one in sys.path],
        list(sys.argv),
        types=sorted({one.type for one in jobs}),
        concurrency=concurrency,
        ingest=ingest,
        observed=counting.listening,
    )
    asked = threading.Event()  # an operator's stop; pool processes follow all other orders themselves

    def obey(wanted: str) -> bool:
        if wanted == "stop":
            asked.set()
        return True

    with open_log(url) as log, running(log, "local", names, name, obey) as run:
        pool = Pool(replace(hello, run=run), names, processes)
        return _run(pool, asked)


def _run(pool: Pool, asked: threading.Event) -> Outcome:
    notice = StopNotice()

    def exit_at_once(number: int, frame: Any) -> None:
        pool.kill()
        os._exit(128 + number)

    def stop() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):  # pool processes do not die with us: kill them first
            signal.signal(number, exit_at_once)
        notice.stopping(pool.stop)

    with stopping_by_signal(stop):
        try:
            pool.start()
            while not pool.wait(_TICK):
                if asked.is_set():
                    asked.clear()
                    stop()
                everyone.emit(RunProgressed(pool.snapshot()))
        except BaseException:
            pool.stop()
            raise
    everyone.emit(RunProgressed(pool.snapshot()))
    notice.wait()
    return PoolOutcome(pool.snapshot(), pool.paused, pool.seconds, member_deaths=pool.deaths)


class _Seat:
    """One of the N places: its process, and when to start the next."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: PoolProcess | None = None
        self.due = math.inf
        self.quiet = 0  # deaths in a row before a first report
        self._pause = 0.0

    def next_pause(self, lived_seconds: float) -> float:
        first, most = _RESTART_SECONDS
        self._pause = first if lived_seconds > _STEADY_SECONDS else min(max(first, 2 * self._pause), most)
        return self._pause


_Received = tuple[_Seat, PoolProcess, Message | Died]


class Pool:
    """Pool processes that run until stopped, or until their groups are drained.

    Use it from one thread, except `stop` and `kill`.
    """

    def __init__(self, hello: Hello, names: Sequence[str], count: int) -> None:
        self._hello = hello
        self._inbox: queue.SimpleQueue[_Received | None] = queue.SimpleQueue()
        self._seats = [_Seat(number) for number in range(1, check_processes(count) + 1)]
        self._past = {name: Counter[str]() for name in names}  # counts of processes that have ended
        self._stopping = False
        self._begun = False  # a process has reported
        self._error: PenstockError | None = None
        self._began = time.monotonic()
        self.paused: dict[str, str] = {}
        self.deaths = 0

    def start(self) -> None:
        """Start all processes."""
        for seat in self._seats:
            seat.due = time.monotonic()
        self._start_due()

    def stop(self) -> None:
        """Stop gracefully. Returns at once; may be called by a signal handler."""
        self._stopping = True
        for seat in self._seats:
            if seat.process is not None:
                seat.process.stop()
        self._inbox.put(None)

    def kill(self) -> None:
        """Kill all processes."""
        for seat in self._seats:
            if seat.process is not None:
                seat.process.kill()

    def wait(self, seconds: float | None = None) -> bool:
        """Return True when all processes have ended, False after `seconds`; raise the error that ended them, if any."""
        until = math.inf if seconds is None else time.monotonic() + seconds
        while any(seat.process is not None or self._restarts(seat) for seat in self._seats):
            left = min([until, *(one.due for one in self._seats if self._restarts(one))]) - time.monotonic()
            try:
                received = self._inbox.get(timeout=None if left == math.inf else max(0.0, left))
            except queue.Empty:
                received = None
            if received is not None:
                self._receive(*received)
            self._start_due()
            if time.monotonic() >= until:
                return False
        if self._error is not None:
            raise self._error
        return True

    def snapshot(self) -> dict[str, dict[str, int]]:
        """Return the counters of every group over all processes, as of their last reports."""
        sums = {name: counts.copy() for name, counts in self._past.items()}
        for seat in self._seats:
            if seat.process is not None:
                _add(sums, seat.process.groups)
        return {name: {one: counts[one] for one in NAMES} for name, counts in sums.items()}

    @property
    def seconds(self) -> float:
        """Seconds since the pool was made."""
        return time.monotonic() - self._began

    # --- starting ------------------------------------------------------------------------------------------------

    def _restarts(self, seat: _Seat) -> bool:
        return seat.due < math.inf and not self._stopping

    def _start_due(self) -> None:
        for seat in self._seats:
            if seat.process is None and self._restarts(seat) and seat.due <= time.monotonic():
                seat.due = math.inf
                seat.process = PoolProcess(self._hello, partial(self._enqueue, seat))
                if self._stopping:  # a signal handler ran in between, and missed the new process
                    seat.process.stop()

    # --- receiving -----------------------------------------------------------------------------------------------

    def _enqueue(self, seat: _Seat, process: PoolProcess, message: Message | Died) -> None:
        self._inbox.put((seat, process, message))

    def _receive(self, seat: _Seat, process: PoolProcess, message: Message | Died) -> None:
        if isinstance(message, Died):
            seat.process = None
            process.stop()  # closes our end of its input
            _add(self._past, process.groups)
            self._ended(seat, process, message)
        elif "warning" in message:
            level, fields = message.get("level", logging.WARNING), message.get("fields", {})
            logger.log(level, "%s", message["warning"], extra={"penstock": fields})
        elif "observed" in message:
            everyone.emit(message["observed"])
        elif "counted" in message:
            counting.emit(message["counted"])
        elif "ended" in message:
            process.last = message
        elif seat.process is process:  # else it is a late message of a process that has ended
            if not process.begun:
                logger.info("process %d (pid %d) is running", seat.number, process.pid)
            if message["stopping"] and not process.stopping:
                logger.info("process %d (pid %d) is stopping", seat.number, process.pid)
            self._begun = process.begun = True
            process.groups, process.paused = message["groups"], message["paused"]
            process.stopping = message["stopping"]

    def _ended(self, seat: _Seat, process: PoolProcess, died: Died) -> None:
        """Handle the end of a process: stopped on request, drained, failed for good, or to be replaced."""
        error = _error(process.last)
        if error is not None and not (self._begun and isinstance(error, AWAY)):
            self._fail(error)
            return
        if error is None and process.last is not None and (self._stopping or not process.last["asked"]):
            # After a drain the last process to end has the newest view; after a stop, collect all views.
            self.paused = {**self.paused, **process.paused} if self._stopping else process.paused
            return
        self.deaths += 1
        why = str(error or (died if process.last is None else "stopped by someone else")).rstrip(".")
        if self._stopping:
            logger.warning("process %d (pid %d): %s", seat.number, process.pid, why, extra=about("pool_process_died"))
            return
        seat.quiet = 0 if process.begun else seat.quiet + 1
        if seat.quiet >= _QUIET_DEATHS:
            self._fail(HandlerUnreachable(f"Processes keep dying before they begin to work: {why}."))
            return
        pause = seat.next_pause(process.seconds)
        seat.due = time.monotonic() + pause
        words = "process %d (pid %d): %s; a new one starts in %g s"
        logger.warning(words, seat.number, process.pid, why, pause, extra=about("pool_process_died"))

    def _fail(self, error: PenstockError) -> None:
        self._error = self._error or error
        self.stop()


def _error(last: Message | None) -> PenstockError | None:
    """Rebuild the error that a process ended with, if any."""
    if last is None or "error" not in last:
        return None
    code, message = last["error"]
    return all_errors().get(code, PenstockError)(message)


def _add(sums: dict[str, Counter[str]], groups: dict[str, dict[str, int]]) -> None:
    for name, counts in groups.items():
        sums.setdefault(name, Counter()).update(counts)

"""The workers of several job types that share one slot, for a slice of time, and their processes between slices."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from penstock.core.job import name_of
from penstock.core.lease import Idle
from penstock.core.limits import IDLE_CLAIM_SECONDS, POLL_FIRST_SECONDS, POLL_MOST_SECONDS
from penstock.core.observe import Observers, everyone
from penstock.declare.job import JobType
from penstock.engine.counters import Counters
from penstock.engine.failure_log import FailureLog
from penstock.engine.jobs.worker import JobWorker
from penstock.engine.lookout import Waiter
from penstock.errors import AWAY
from penstock.log.log import Log

_GROWTH = 1.1  # of the pause between two looks: keeps it at a tenth of the time since something happened
_LOOK_SECONDS = 0.02  # between two looks whether running jobs have ended
_LONG_SECONDS = 2.0  # after the end of a slice, for running jobs, before other types continue


class Ending(Protocol):
    """Whether a slice ends."""

    unwanted: bool  # nothing new is to be claimed, whatever still runs

    def __call__(self) -> bool: ...


@dataclass(slots=True)
class Rest:
    """Where a worker waits that found nothing, until somebody wakes it."""

    waiter: Waiter | None = None
    until: float = math.inf  # when something of its type is due, as its last claim said

    def watch_for(self, waiter: Waiter, idle: Idle) -> None:
        """Wait for a reason to claim again."""
        now = time.monotonic()
        self.until = math.inf if idle.seconds is None else now + idle.seconds
        waiter.idle = idle
        waiter.due = min(self.until, now + IDLE_CLAIM_SECONDS)
        self.waiter = waiter

    def forget(self, waiter: Waiter) -> None:
        """Wait no more."""
        waiter.woken.clear()
        self.waiter = None

    def wake(self) -> None:
        """Let the worker claim."""
        waiter, self.waiter = self.waiter, None
        if waiter is not None:
            waiter.woken.set()


@dataclass(slots=True)
class _Type:
    job: JobType
    counters: Counters = field(default_factory=Counters)
    rest: Rest = field(default_factory=Rest)
    worker: JobWorker | None = None  # once a job of the type was due
    thread: threading.Thread | None = None


class JobWorkers:
    """Works for job types in slices. One thread calls `work`, again and again; any thread may call `stop`.

    A type gets its worker, and so its process, when one of its jobs is due. Between slices the workers are quiet.
    One look at the log serves all types that have nothing to do, so that few connections are enough.
    """

    def __init__(self, log: Log, jobs: Sequence[JobType], claimed_by: str, run: int | None) -> None:
        self.log = log
        self.until: Ending
        self.follow: Callable[[str], None] = lambda wanted: None
        self._claimed_by = claimed_by
        self._run_id = run
        self._types = {one.name: _Type(one) for one in jobs}
        self._wanted = log.job_claims.wanted([one.type for one in jobs], jobs[0].queue)  # types of one queue
        self._active: set[str] = set()  # types that may claim
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._seen: Idle | None = None  # what the last look said
        self._look_at = 0.0  # when to look again though nothing was appended

    @property
    def has_on_stop(self) -> bool:
        return any(one.job.around.on_stop for one in self._types.values())

    def counts(self) -> dict[str, dict[str, int]]:
        """Return what was done so far, by the names of the types."""
        return {name: one.counters.snapshot() for name, one in self._types.items()}

    @property
    def idle(self) -> Idle | None:
        """When there may be something to do again; None if something is being done, or may be."""
        if self._seen is None or self._busy():
            return None
        until = self._look_at if self._seen.seconds is not None else math.inf
        for one in self._types.values():
            if one.worker is not None and one.worker.idle is None:
                return None
            until = min(until, one.rest.until)
        seconds = None if until == math.inf else max(0.0, until - time.monotonic())
        return replace(self._seen, until=None, seconds=seconds)

    def again(self) -> None:
        """Get ready for the next slice."""
        self._stopping.clear()
        self._seen = None

    def work(self) -> None:
        """Work until `until` says so, or until stopped; running jobs end first."""
        try:
            self._let_claim(() if self.until.unwanted else self._types)
            self._serve(self.until)
            self._finish()
        finally:
            self._let_claim(())
        if self._stopping.is_set():
            self._end()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Stop gracefully: running jobs end, and keep their leases until then; the rest is given back."""
        self._stopping.set()
        for worker in [one.worker for one in self._types.values()]:
            if worker is not None:
                worker.stop()

    def close(self) -> None:
        """Stop, and free all resources."""
        self.stop()
        self._end()

    # --- in a slice ----------------------------------------------------------------------------------------------

    def _serve(self, until: Callable[[], bool]) -> None:
        pause = POLL_FIRST_SECONDS
        while not self._stopping.is_set() and self._error is None and not until():
            pause = POLL_FIRST_SECONDS if self._look() else min(_GROWTH * pause, POLL_MOST_SECONDS)
            self._stopping.wait(pause)

    def _finish(self) -> None:
        """Let running jobs end. The slot is theirs however long they take, so the other types continue meanwhile.

        A type that has held up the end claims nothing more in this slice. So every slice ends.
        """
        held: set[str] = set()

        def over() -> bool:
            return self.until.unwanted or not held & self._busy()

        self._let_claim(())
        since = time.monotonic()
        while busy := self._busy():
            if time.monotonic() - since > _LONG_SECONDS and not self.until.unwanted:
                held |= busy
                self._let_claim(self._types.keys() - held)
                self._serve(over)
                self._let_claim(())
                since = time.monotonic()
            time.sleep(_LOOK_SECONDS)

    def _let_claim(self, names: Collection[str]) -> None:
        """Let these types claim, and no other."""
        self._active = set(names)
        for name, one in self._types.items():
            if one.worker is None:
                continue
            if name in names:
                one.worker.idle = None
            one.worker.quiet(name not in names)

    def _busy(self) -> set[str]:
        return {name for name, one in self._types.items() if one.worker is not None and one.worker.busy}

    # --- look, wake, start ---------------------------------------------------------------------------------------

    def _look(self) -> bool:
        """Wake and start the workers of types with something to claim; returns whether there were any."""
        resting = {
            name: one
            for name, one in self._types.items()
            if name in self._active and (one.worker is None or one.rest.waiter is not None)
        }
        try:
            return self._rouse(resting) if resting else False
        except AWAY:
            return False  # whoever has work reports it

    def _rouse(self, resting: dict[str, _Type]) -> bool:
        now, end = time.monotonic(), self.log.end()
        waiters = {name: one.rest.waiter for name, one in resting.items()}
        known = [one.idle.end for one in waiters.values() if one is not None and one.idle is not None]
        grew = self._seen is None or end > min([self._seen.end, *known])
        due: set[str] = set()
        if grew or now >= self._look_at:
            due = self._names_due()
        woke = False
        for name, one in resting.items():
            waiter = waiters[name]
            if one.worker is None:
                woke = woke or name in due
                if name in due:
                    self._start(one)
            elif waiter is not None and (now >= waiter.due or (grew and name in due)):
                one.worker.idle = None
                one.rest.wake()
                woke = True
            elif waiter is not None and waiter.idle is not None and grew and self._seen is not None:
                waiter.idle = replace(waiter.idle, horizon=self._seen.horizon, end=self._seen.end)
        return woke

    def _names_due(self) -> set[str]:
        rows, self._seen = self.log.job_claims.look(self._wanted)
        seconds = IDLE_CLAIM_SECONDS if self._seen.seconds is None else min(IDLE_CLAIM_SECONDS, self._seen.seconds)
        self._look_at = time.monotonic() + seconds
        names = [name_of(row.stream) for row in rows]
        return {f"jobs:{one.queue}:{one.type}" for one in names if one is not None}

    def _start(self, one: _Type) -> None:
        observers = Observers(one.counters, FailureLog(), parent=everyone)
        one.rest = Rest()
        one.worker = JobWorker(
            self.log,
            one.job,
            self._claimed_by,
            observers,
            one.rest,
            run_id=self._run_id,
            follow=self._follow,
        )
        # A thread of its own: the process of the type dies with the thread that started it.
        one.thread = threading.Thread(
            target=self._run, args=(one.worker,), name=f"penstock-{one.job.name}", daemon=True
        )
        one.thread.start()
        if self._stopping.is_set():  # in between, and it missed the new worker
            one.worker.stop()

    def _follow(self, wanted: str) -> None:
        """Pass on what the run should do to whoever runs this slice."""
        self.follow(wanted)

    def _run(self, worker: JobWorker) -> None:
        try:
            worker.run()
        except BaseException as error:
            self._error = self._error or error

    def _end(self) -> None:
        for one in self._types.values():
            if one.thread is not None:
                one.thread.join()
            one.worker = one.thread = None

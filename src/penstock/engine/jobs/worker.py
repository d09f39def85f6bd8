"""The loop of one job type: claim, let its process do the jobs, settle each soon after it has ended."""

from __future__ import annotations

import logging
import select
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from penstock.core import fingerprint
from penstock.core.lease import Failure, Idle
from penstock.core.observe import Claimed, LeaseGone, Observers, ProcessesDied
from penstock.core.signals import failure_of
from penstock.declare.job import JobType, portable_job
from penstock.engine.handlers.runner import TimedOut
from penstock.engine.isolation.marks import Marks
from penstock.engine.isolation.process import Died, HandlerProcess, Loading
from penstock.engine.jobs.batch import is_suspect
from penstock.engine.jobs.desk import Desk, JobKey, was_cancelled
from penstock.engine.jobs.doomed import Doomed
from penstock.engine.jobs.messages import Cancel, Feed, Outcomes, Recall, Recalled, job_of
from penstock.engine.jobs.pace import JobPace
from penstock.engine.jobs.running import Running
from penstock.engine.jobs.wake import WakePipe
from penstock.engine.lookout import Waiter, Wakes
from penstock.engine.outage import patiently, try_once
from penstock.errors import HandlerUnreachable
from penstock.log.jobs import beat
from penstock.log.jobs.wanted import Wanted
from penstock.log.lease import Lease
from penstock.log.log import Log

T = TypeVar("T")
logger = logging.getLogger("penstock")

_TICK_SECONDS = 0.25
_IDLE_SECONDS = 5.0
_WATCH_SECONDS = 0.05
_RELOAD_SECONDS = 2.0
_PROGRESS_SECONDS = 1.0
_QUIET_DEATHS = 10  # of the process in a row, without a job that ran


class JobProcess(HandlerProcess):
    """The process of a job type."""

    entry = "penstock.engine.jobs.child"


@dataclass(slots=True)
class JobWorker:
    """The worker of one job type. One thread calls `run`; any thread may call `stop` and `quiet`."""

    log: Log
    job: JobType
    claimed_by: str
    observers: Observers
    wakes: Wakes
    run_id: int | None = None
    follow: Callable[[str], None] | None = None  # told with every claim and heartbeat what the run should do
    idle: Idle | None = None  # the answer to the last claim, if it found nothing and nothing is being done
    _stopping: threading.Event = field(default_factory=threading.Event)
    _quiet: threading.Event = field(default_factory=threading.Event)
    _wake: WakePipe = field(default_factory=WakePipe)
    _waiter: Waiter = field(init=False)
    _marks: Marks = field(init=False)  # the jobs that run, by slot
    _running: Running = field(init=False)
    _process: JobProcess | None = None
    _loading: Loading = field(init=False)
    _quiet_deaths: int = 0
    _wanted: Wanted = field(init=False)
    _desk: Desk = field(init=False)
    _pace: JobPace = field(init=False)
    _claim_again: bool = True  # something may be claimed
    _claiming: bool = False
    _alone: list[Lease] = field(default_factory=list)  # leases that wait until nothing else runs
    _exclusive: bool = False  # such a lease is being worked on
    _doomed: Doomed = field(init=False)
    _next_beat: float = 0.0
    _next_note: float = 0.0
    _next_watch: float = 0.0

    def __post_init__(self) -> None:
        policy = self.job.policy
        self._loading = Loading(self.job.name)
        self._waiter = Waiter(woken=self._wake)
        self._wanted = Wanted(self.job.queue, [self.job.type])
        self._marks = Marks(policy.concurrency, 0, shared=True)
        self._running, self._doomed = Running(self._marks), Doomed(self._marks)
        self._desk = Desk(self.job, self.observers, self._patiently)
        self._pace = JobPace(policy.concurrency, one_by_one=policy.on_error == "expire")
        self._next_beat = time.monotonic() + policy.heartbeat_seconds

    # --- from other threads --------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop gracefully: running jobs end, and keep their leases until then; the rest is given back."""
        self._stopping.set()
        self._wake.set()

    def quiet(self, quiet: bool) -> None:
        """Finish what is claimed and claim nothing new; False to resume."""
        if quiet:
            self._quiet.set()
        else:
            self._quiet.clear()
        self._wake.set()

    @property
    def busy(self) -> bool:
        """Whether it holds a job, or is about to; once quiet and not busy, it stays so."""
        return self._claiming or bool(self._desk.batches) or bool(self._alone)

    # --- the loop ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Work until stopped, then free all resources."""
        try:
            self._start()
            while not self._stopping.is_set() or self._desk.batches:
                self._step()
        finally:
            self.wakes.forget(self._waiter)
            self._note_progress()
            for lease in self._alone:
                self._patiently(lease.release)
            if self._process is not None:
                self._process.stop()
            self._marks.close()
            self._wake.close()

    def _step(self) -> None:
        if self._wake.is_set():  # before the flags are read that it tells of
            self._wake.clear()
            self._claim_again = True
        if self._stopping.is_set():
            for number in self._desk.batches:
                self._recall(number)
        elif (not self._quiet.is_set() or self._alone) and (self._process is not None or self._start()):
            self._claim()
        self._wait()
        self._receive()
        self._watch()
        self._settle()
        self._beat()

    def _start(self) -> bool:
        """Start the process; False if its function cannot be loaded now."""
        self._marks.clear_slots()
        process = JobProcess(portable_job(self.job), self._marks)
        try:
            process.wait_ready(self._beat)  # a lease may wait for it
        except HandlerUnreachable as error:
            self._loading.failed(process, error)
            self._stopping.wait(_RELOAD_SECONDS)
            return False
        self._process = process
        self._loading.succeeded()
        return True

    # --- claim ---------------------------------------------------------------------------------------------------

    def _claim(self) -> None:
        """Claim while places are free, or will be soon."""
        if self._alone and not self._desk.batches:
            self._feed_alone()
        if not self._desk.batches:
            self._exclusive = bool(self._alone)
        while self._claim_again and not self._alone and not self._exclusive and self._process is not None:
            limit, shared = self._pace.room(self._desk.left)
            if limit < 1:
                return
            self._claiming = True  # before `_quiet` is read: who sets it waits until this is over
            self._take(limit, shared)
            self._claiming = False

    def _take(self, limit: int, shared: bool) -> None:
        """Claim jobs that share a lease, or have one each; if there are none, be woken when there are.

        Nothing is claimed while quiet, not even after an outage of the database in which that was said.
        """
        self.wakes.forget(self._waiter)
        began = time.monotonic()
        take = self.log.job_claims.lease if shared else self.log.job_claims.leases
        found = self._patiently(
            lambda: None if self._quiet.is_set() else take(self._wanted, limit, self.claimed_by, self.run_id)
        )
        if found is None or isinstance(found, Idle):
            idle = found or Idle(None, seconds=_TICK_SECONDS)
            self.idle = None if self._desk.batches else idle
            self._rest(idle)
            return
        self.idle = None
        self._waiter.found()
        for lease in found:
            if is_suspect(lease):
                self._alone.append(lease)
            else:
                self._feed(lease)
            self.observers.emit(Claimed(self.job.name, lease.id, len(lease), (time.monotonic() - began) / len(found)))
        if shared:
            self._pace.saw(found[0].left)
            if self._wanted.rest is not None:
                self._rest(self._wanted.rest)

    def _rest(self, idle: Idle) -> None:
        """Claim nothing until there may be something."""
        self._claim_again = False
        self.wakes.watch_for(self._waiter, idle)

    def _feed_alone(self) -> None:
        """Run what may have killed its process alone, in a fresh one. Until that has started it keeps its lease."""
        process, self._process = self._process, None
        if process is not None:
            process.stop(self._beat)
        self._doomed.clear()
        started = self._start()
        if not self._alone:
            return  # lost meanwhile
        if not started:
            self._patiently(self._alone.pop(0).release)
        else:
            self._exclusive = True
            self._feed(self._alone.pop(0))

    def _feed(self, lease: Lease) -> None:
        assert self._process is not None
        number = self._desk.open(lease)
        kind, body = lease.events.pack(0, len(lease))
        self._process.send(Feed(number, kind, lease.stream, lease.events.claim, lease.token), body)
        self._process.flush()  # the next claim can wait
        if lease.wanted is not None and self.follow is not None:
            self.follow(lease.wanted)

    # --- wait, receive, settle -----------------------------------------------------------------------------------

    def _wait(self) -> None:
        """Wait until the process says something, something may be claimed, or it is time to look."""
        busy = bool(self._desk.batches)
        if self._stopping.is_set() and not busy:
            return
        if self._process is None:
            self._stopping.wait(0.0 if busy else _TICK_SECONDS)
            return
        self._process.flush()
        watched = select.poll()
        watched.register(self._process.fileno(), select.POLLIN | (select.POLLOUT if self._process.sending else 0))
        watched.register(self._wake.fileno(), select.POLLIN)
        waits = _TICK_SECONDS if busy else _IDLE_SECONDS
        if self._alone and not busy:
            waits = 0.0  # it is its turn now
        watched.poll(1000 * max(0.0, min(self._next_beat - time.monotonic(), waits)))

    def _receive(self) -> None:
        while self._process is not None and (message := self._process.pump(0)) is not None:
            match message:
                case Outcomes():
                    self._pace.ran(sum(map(len, message.ended.values())), message.seconds)
                    self._doomed.ended(message.ended)
                    self._desk.note(message)
                case Recalled():
                    self._given_back(message)
                case Died():
                    self._died(fingerprint.of_text("process_died", f"process_died: {message}"))

    def _settle(self) -> None:
        """Settle what is finished; ask a batch back whose first jobs have waited too long for the others."""
        for number in self._desk.finished():
            self._finish(number)
        for number in self._desk.overdue():
            self._recall(number)

    def _recall(self, number: int) -> None:
        """Ask for what has not begun; the answer comes after all outcomes so far."""
        batch = self._desk.batches[number]
        if not batch.recalled and self._process is not None:
            batch.recalled = True
            self._process.send(Recall(number))
            self._process.flush()

    def _given_back(self, answer: Recalled) -> None:
        batch = self._desk.batches.get(answer.batch)
        if batch is None:
            return
        running = [place for place in answer.running if not batch.has_ended(place)]
        self._forget_unbegun(answer.batch, [place for place in batch.unended() if place not in answer.running])
        if len(batch.lease) > 1 or not running:  # otherwise it goes on in its own lease
            self._finish(answer.batch, running)

    def _forget_unbegun(self, number: int, places: list[int]) -> None:
        """Wait no more for the end of jobs that were given back; those that were cancelled have ended this way."""
        for place in places:
            self._doomed.forget((number, place))
            self._desk.end_cancelled((number, place))

    def _finish(self, number: int, running: list[int] | None = None) -> None:
        settled = self._desk.finish(number, running or ())
        if settled is None:
            for place in running or ():
                self._end_soon((number, place))
        if settled is None or settled.failed or settled.released or not self._desk.batches:
            self._claim_again = True

    # --- what goes wrong -----------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Kill the process if a job takes too long, does not end when it should, or takes too much memory."""
        now, policy = time.monotonic(), self.job.policy
        if self._process is None or not (self._desk.batches or self._doomed) or now < self._next_watch:
            return
        self._next_watch = now + _WATCH_SECONDS
        used, seconds = self._process.memory_mb(), policy.timeout_seconds
        late = None if seconds is None else self._running.late(now, seconds, self.job)
        if used > policy.memory_mb:
            why = f"out_of_memory: {used:,.0f} MB in use, memory_mb is {policy.memory_mb:,}"
            self._died(fingerprint.of_text("out_of_memory", why))
        elif late is not None:
            self._died(failure_of(TimedOut(seconds or 0.0)), late)
        elif (job := self._doomed.late(now)) is not None:
            self._died(was_cancelled(), job)

    def _died(self, failure: Failure, culprit: JobKey | None = None) -> None:
        """Blame the job that ran alone, or suspect all that ran; give back what was not reported."""
        assert self._process is not None
        self._process.kill()
        self._process = None
        running = [job_of(value) for value in self._marks.slots if value] if culprit is None else [culprit]
        self._quiet_deaths = 0 if running else self._quiet_deaths + 1
        running = [job for job in running if (at := self._desk.find(job))[0] is not None and not at[0].has_ended(at[1])]
        self._desk.blame(running, failure)
        self._doomed.clear()
        self.observers.emit(ProcessesDied(self.job.name, 1))
        for number in list(self._desk.batches):
            self._finish(number)
        self._desk.forget_moves()
        if self._quiet_deaths >= _QUIET_DEATHS:
            raise HandlerUnreachable(f"The process of {self.job.name} keeps dying between jobs: {failure.message}.")

    def _end_soon(self, job: JobKey) -> None:
        """Tell a job to end, and kill its process if it does not."""
        if self._process is not None:
            self._process.send(Cancel(*job))
            self._process.flush()
            self._doomed.add(job)

    # --- heartbeats ----------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        now, policy = time.monotonic(), self.job.policy
        if now >= self._next_note and self._desk.progress:
            self._note_progress()
            self._next_note = now + _PROGRESS_SECONDS
        held = self._desk.held() | {lease.id: lease.token for lease in self._alone}
        if now < self._next_beat:
            return
        self._next_beat = now + policy.heartbeat_seconds
        if not held:
            return
        answer = try_once(lambda: beat.beat(self.log.store, held, policy.lease_seconds), self.job.name)
        if answer is None:
            self._next_beat = now + policy.heartbeat_seconds / 4
            return
        if answer.wanted is not None and self.follow is not None:
            self.follow(answer.wanted)
        self._alone = [lease for lease in self._alone if lease.id not in answer.lost]
        for number, batch in self._desk.batches.items():
            if batch.lease.id in answer.lost and not batch.lost:
                self._lose(number)
            for offset in answer.cancel.get(batch.lease.id, ()):
                if offset in (offsets := batch.lease.events.offsets):
                    self._cancel(number, offsets.index(offset))

    def _note_progress(self) -> None:
        notes, self._desk.progress = self._desk.progress, {}
        if notes:
            try_once(lambda: beat.note(self.log.store, notes), self.job.name)

    def _lose(self, number: int) -> None:
        batch = self._desk.batches[number]
        batch.lost = True
        self.observers.emit(LeaseGone(self.job.name, f"lease {batch.lease.id} was lost"))
        if len(batch.lease) == 1:
            self._end_soon(self._desk.key_of(number, 0))
        else:
            self._recall(number)

    def _cancel(self, number: int, place: int) -> None:
        job = self._desk.key_of(number, place)
        if not self._desk.batches[number].has_ended(place) and job not in self._desk.cancelled:
            self._desk.cancelled.add(job)
            self._end_soon(job)
            if not self._doomed.runs(job):  # it may wait behind long ones
                self._recall(number)

    def _patiently(self, do: Callable[[], T]) -> T | None:
        return patiently(do, self.job.name, self.observers, self._stopping)

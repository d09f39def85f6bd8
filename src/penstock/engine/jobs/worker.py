"""The loop of one job type: claim, let its process do the jobs, settle each soon after it has ended."""

from __future__ import annotations

import logging
import select
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from penstock.core import codec, fingerprint
from penstock.core.job import CANCELLED
from penstock.core.lease import DEATHS, Failure, Idle, Settled, Settlement
from penstock.core.observe import Claimed, EventsFailed, LeaseEnded, LeaseGone, Observers, ProcessesDied
from penstock.core.signals import failure_of
from penstock.declare.job import JobType, portable_job
from penstock.engine.handlers.runner import TimedOut
from penstock.engine.isolation.marks import Marks
from penstock.engine.isolation.process import Died, HandlerProcess
from penstock.engine.jobs.batch import Batch
from penstock.engine.jobs.messages import Cancel, Feed, Outcomes, Recall, Recalled, job_of
from penstock.engine.jobs.wake import WakePipe
from penstock.engine.lookout import LookOut, Waiter
from penstock.engine.outage import patiently, try_once
from penstock.engine.pace import Pace
from penstock.errors import AWAY, HandlerUnreachable, LeaseLost
from penstock.log.jobs import beat
from penstock.log.lease import Lease
from penstock.log.log import Log

T = TypeVar("T")
logger = logging.getLogger("penstock")

BATCH_SECONDS = 1.0  # of work in one lease, about
_SETTLE_SECONDS = 1.0  # after a job has ended, whatever its neighbours do
_TICK_SECONDS = 0.25
_MEASURE_SECONDS = 0.05  # of work, before a pace is believed
_QUICK = 8  # jobs that a place does in a lease; with fewer, each job has a lease of its own
_GRACE_SECONDS = 10.0  # for a job that should end, before its process is killed
_RELOAD_SECONDS = 2.0
_PROGRESS_SECONDS = 1.0
_IDLE_SECONDS = 5.0
_WATCH_SECONDS = 0.05
_LATE = 1.5  # times its limit, and a second: a loop that does not end its tasks itself is blocked
_QUIET_DEATHS = 10  # of the process in a row, without a job that ended


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
    lookout: LookOut
    run_id: int | None = None
    follow: Callable[[str], None] | None = None
    idle: Idle | None = None  # the answer to the last claim, if it found nothing and nothing is being done
    _stopping: threading.Event = field(default_factory=threading.Event)
    _quiet: threading.Event = field(default_factory=threading.Event)
    _wake: WakePipe = field(default_factory=WakePipe)
    _waiter: Waiter = field(init=False)
    _marks: Marks = field(init=False)
    _process: JobProcess | None = None
    _loaded: bool = False
    _batches: dict[int, Batch] = field(default_factory=dict)
    _moved: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)  # jobs that were kept: where they are
    _number: int = 0
    _alone: list[Lease] = field(default_factory=list)  # leases that wait until nothing else runs
    _exclusive: bool = False  # such a lease is being worked on
    _since: dict[int, tuple[int, float]] = field(default_factory=dict)  # by slot: its value, since when
    _doomed: dict[tuple[int, int], float] = field(default_factory=dict)  # jobs that should end, and until when
    _cancelled: set[tuple[int, int]] = field(default_factory=set)
    _progress: dict[int, tuple[float | None, str | None]] = field(default_factory=dict)
    _pace: Pace = field(init=False)
    _measured: bool = False
    _busy: float = 0.0
    _ended: int = 0
    _last: float = 0.0
    _next_beat: float = 0.0
    _next_note: float = 0.0
    _next_watch: float = 0.0
    _claim_again: bool = True
    _quiet_deaths: int = 0

    def __post_init__(self) -> None:
        policy = self.job.policy
        self._waiter = Waiter(woken=self._wake)
        self._marks = Marks(policy.concurrency, 0, shared=True)
        self._pace = Pace(BATCH_SECONDS, 50_000)
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

    # --- the loop ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Work until stopped, then free all resources."""
        try:
            self._start()
            self._last = time.monotonic()
            while not self._stopping.is_set() or self._batches:
                self._step()
        finally:
            self.lookout.forget(self._waiter)
            for lease in self._alone:
                self._patiently(lease.release)
            if self._process is not None:
                self._process.stop()
            self._marks.close()
            self._wake.close()

    def _step(self) -> None:
        if self._stopping.is_set():
            for number, batch in self._batches.items():
                self._recall(number, batch)
        elif not self._quiet.is_set() and (self._process is not None or self._start()):
            self._claim()
        elif self._wake.is_set():
            self._wake.clear()
        self._wait()
        self._receive()
        self._watch()
        self._settle()
        self._beat()

    @property
    def _limit_seconds(self) -> float:
        limit = self.job.policy.timeout_seconds or 0.0
        return _LATE * limit + 1 if self.job.is_async else limit

    @property
    def _left(self) -> int:
        return sum(batch.left for batch in self._batches.values())

    def _start(self) -> bool:
        """Start the process; False if its function cannot be loaded now."""
        for slot in range(len(self._marks.slots)):
            self._marks.slots[slot] = 0
        try:
            process = JobProcess(portable_job(self.job), self._marks)
            process.wait_ready()
        except HandlerUnreachable as error:
            if not self._loaded:
                raise
            logger.warning("%s: %s Retrying.", self.job.name, error.message)
            self._stopping.wait(_RELOAD_SECONDS)
            return False
        self._process, self._loaded = process, True
        return True

    # --- claim ---------------------------------------------------------------------------------------------------

    def _claim(self) -> None:
        """Claim while places are free, or will be soon."""
        if self._wake.is_set():
            self._wake.clear()
            self._claim_again = True
        if self._alone and not self._batches:
            self._feed_alone()
        if not self._batches:
            self._exclusive = bool(self._alone)
        while self._claim_again and not self._alone and not self._exclusive and self._process is not None:
            limit, quick = self._room()
            if limit < 1:
                return
            self._take(limit, quick)

    def _room(self) -> tuple[int, bool]:
        """Return how many jobs to claim, and whether as one lease."""
        left = self._left
        if not self._is_quick():
            return self.job.policy.concurrency - left, False
        limit = self._pace.limit
        return (limit if left <= limit // 2 else 0), True

    def _take(self, limit: int, quick: bool) -> None:
        self.lookout.forget(self._waiter)
        take = self.log.job_claims.lease if quick else self.log.job_claims.leases
        found = self._patiently(lambda: take(self.job.streams, limit, self.claimed_by, self.run_id))
        if found is None or isinstance(found, Idle):
            idle = found or Idle(None, seconds=_TICK_SECONDS)
            self.idle = None if self._batches else idle
            self._claim_again = False
            self.lookout.watch_for(self._waiter, idle)
            return
        self.idle = None
        for lease in found:
            self.observers.emit(Claimed(self.job.name, lease.id, len(lease)))
            if _is_suspect(lease):
                self._alone.append(lease)
            else:
                self._feed(lease)
        if quick:
            self._pace.saw(found[0].left)

    def _is_quick(self) -> bool:
        """Whether jobs are so short that many of them share a lease."""
        if not self._measured or self.job.policy.on_error == "expire":
            return False
        return self._pace.limit >= _QUICK * self.job.policy.concurrency

    def _feed_alone(self) -> None:
        """Run what may have killed its process alone, in a fresh one."""
        lease = self._alone.pop(0)
        if self._process is not None:
            self._process.stop()
            self._process = None
        if self._start():
            self._exclusive = True
            self._feed(lease)
        else:
            self._patiently(lease.release)

    def _feed(self, lease: Lease) -> None:
        assert self._process is not None
        self._number += 1
        self._batches[self._number] = Batch(lease)
        kind, body = lease.events.pack(0, len(lease))
        self._process.send(Feed(self._number, kind, lease.stream, lease.events.claim, lease.token), body)
        if lease.wanted is not None and self.follow is not None:
            self.follow(lease.wanted)

    # --- wait and receive ----------------------------------------------------------------------------------------

    def _wait(self) -> None:
        """Wait until the process says something, something may be claimed, or it is time to look."""
        if self._process is None:
            self._stopping.wait(0.0 if self._batches else _TICK_SECONDS)
            return
        self._process.flush()
        watched = select.poll()
        watched.register(self._process.fileno(), select.POLLIN | (select.POLLOUT if self._process.sending else 0))
        watched.register(self._wake.fileno(), select.POLLIN)
        now = time.monotonic()
        waits = _TICK_SECONDS if self._batches or self._quiet.is_set() else _IDLE_SECONDS
        if self._alone and not self._batches:
            waits = 0.0  # it is its turn now
        watched.poll(1000 * max(0.0, min(self._next_beat - now, waits)))

    def _receive(self) -> None:
        now = time.monotonic()
        if self._batches:
            self._busy += now - self._last
        self._last = now
        while self._process is not None and (message := self._process.pump(0)) is not None:
            match message:
                case Outcomes():
                    self._note(message)
                case Recalled():
                    self._given_back(message)
                case Died():
                    self._died(fingerprint.of_text("process_died", f"process_died: {message}"))
        if self._busy >= _MEASURE_SECONDS and self._ended:
            self._pace.ran(self._ended, self._busy)
            self._measured, self._busy, self._ended = True, 0.0, 0

    def _find(self, job: tuple[int, int]) -> tuple[Batch | None, int]:
        number, place = self._moved.get(job, job)
        return self._batches.get(number), place

    def _note(self, said: Outcomes) -> None:
        for job, progress in said.progress.items():
            batch, place = self._find(job)
            if batch is not None:
                self._progress[batch.lease.events.offsets[place]] = progress
        self._quiet_deaths = 0
        for job in said.ended:
            batch, place = self._find(job)
            self._moved.pop(job, None)
            self._ended += 1
            self._doomed.pop(job, None)
            if batch is None:
                continue
            if job in said.results:
                batch.results[place] = said.results[job]
            if job in said.effects:
                batch.effects[place] = said.effects[job]
            if (why := said.unavailable.get(job)) is not None:
                batch.back.add(place)
                batch.unavailable = why
            cancelled = job in self._cancelled
            self._cancelled.discard(job)
            if (why := said.dead.get(job) or said.failed.get(job)) is not None:
                if cancelled:
                    batch.dead[place] = _cancelled(why)
                elif job in said.dead:
                    batch.dead[place] = why
                elif self.job.policy.on_error == "expire":
                    self._let_expire(batch)
                    continue
                else:
                    batch.failed[place] = why
            batch.end(place)

    def _let_expire(self, batch: Batch) -> None:
        """Report nothing, and beat no more: its lease, which it has alone, runs out."""
        self._batches = {number: one for number, one in self._batches.items() if one is not batch}
        self.observers.emit(LeaseGone(self.job.name, f"lease {batch.lease.id} is left to expire: its job failed"))

    # --- settle --------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Settle what is finished; ask a batch back whose first jobs have waited too long for the others."""
        now = time.monotonic()
        for number, batch in list(self._batches.items()):
            if batch.left == 0 or batch.lost:
                self._finish(number, batch)
            elif len(batch.lease) > 1 and (
                batch.unavailable is not None
                or (batch.waits_since is not None and now - batch.waits_since > _SETTLE_SECONDS)
            ):
                self._recall(number, batch)

    def _recall(self, number: int, batch: Batch) -> None:
        """Ask for what has not begun; the answer comes behind all outcomes so far."""
        if not batch.recalled and self._process is not None and (len(batch.lease) > 1 or self._stopping.is_set()):
            batch.recalled = True
            self._process.send(Recall(number))
            self._process.flush()

    def _given_back(self, answer: Recalled) -> None:
        batch = self._batches.get(answer.batch)
        if batch is None:
            return
        running = [place for place in answer.running if not batch.has_ended(place)]
        if len(batch.lease) == 1 and running:
            return  # it goes on in its own lease
        self._finish(answer.batch, batch, running)

    def _finish(self, number: int, batch: Batch, running: Iterable[int] = ()) -> None:
        del self._batches[number]
        kept = sorted(running)
        settled = None if batch.lost else self._patiently(lambda: self._report(batch, kept))
        if settled is None:
            for place in kept:
                self._end_soon((number, place))
            return
        self.observers.emit(LeaseEnded(self.job.name, batch.lease.id, settled))
        if batch.failed or batch.dead:
            self.observers.emit(EventsFailed(self.job.name, batch.lease.events, {**batch.failed, **batch.dead}))
        if settled.failed or settled.released or not self._batches:
            self._claim_again = True
        for place, lease in zip(kept, settled.kept, strict=True):
            self._number += 1
            self._batches[self._number] = Batch(lease, recalled=True)
            self._moved[number, place] = (self._number, 0)

    def _report(self, batch: Batch, running: list[int]) -> Settled:
        try:
            return batch.settle(running)
        except (LeaseLost, *AWAY):
            raise
        except Exception as error:
            logger.warning("%s: the settle failed: %s: %s", self.job.name, type(error).__name__, error)
            if len(batch.lease) > 1:
                return batch.lease.release()
            failure = fingerprint.of_text(codec.error_code(error), f"settle_failed: {codec.error_text(error)}")
            upto, _ = batch.lease.split(set())
            return batch.lease.apply(Settlement(failed={batch.lease.events.offsets[0]: failure}, upto=upto))

    # --- what goes wrong -----------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Kill the process if a job takes too long, does not end when it should, or takes too much memory."""
        now, policy = time.monotonic(), self.job.policy
        if self._process is None or not self._batches or now < self._next_watch:
            return
        self._next_watch = now + _WATCH_SECONDS
        used = self._process.memory_mb()
        if used > policy.memory_mb:
            why = f"out_of_memory: {used:,.0f} MB in use, memory_mb is {policy.memory_mb:,}"
            self._died(fingerprint.of_text("out_of_memory", why))
            return
        for slot, value in enumerate(self._marks.slots):
            known, since = self._since.get(slot, (0, now))
            if not value or value != known:
                self._since[slot] = (value, now)
            elif policy.timeout_seconds is not None and now - since > self._limit_seconds:
                self._died(failure_of(TimedOut(policy.timeout_seconds)), job_of(value))
                return
        for job, until in list(self._doomed.items()):
            if now > until:
                self._died(_cancelled(None), job)
                return

    def _died(self, failure: Failure, culprit: tuple[int, int] | None = None) -> None:
        """Blame the job that ran alone, or suspect all that ran; give back what was not reported."""
        assert self._process is not None
        self._process.kill()
        self._process = None
        running = [job_of(value) for value in self._marks.slots if value]
        running = [
            job for job in running if (found := self._find(job))[0] is not None and not found[0].has_ended(found[1])
        ]
        self._doomed.clear()
        if culprit is not None:
            running = [culprit]
        for job in running:
            batch, place = self._find(job)
            if batch is None:
                continue
            if job in self._cancelled or failure.code == CANCELLED:
                batch.dead[place] = _cancelled(failure)
                batch.end(place)
            elif len(running) == 1:
                batch.failed[place] = failure
                batch.end(place)
            else:
                batch.suspects[place] = failure
                batch.end(place)
        self._cancelled.clear()
        self.observers.emit(ProcessesDied(self.job.name, 1))
        self._quiet_deaths = 0 if running else self._quiet_deaths + 1
        if self._quiet_deaths >= _QUIET_DEATHS:
            raise HandlerUnreachable(f"The process of {self.job.name} keeps dying between jobs: {failure.message}.")
        for number, batch in list(self._batches.items()):
            self._finish(number, batch)
        self._moved.clear()
        self._claim_again = True

    def _end_soon(self, job: tuple[int, int]) -> None:
        """Tell a job to end, and kill its process if it does not."""
        if self._process is not None:
            self._process.send(Cancel(*job))
            self._process.flush()
            self._doomed.setdefault(job, time.monotonic() + _GRACE_SECONDS)

    # --- heartbeats ----------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        now = time.monotonic()
        if now >= self._next_note and self._progress:
            notes, self._progress = self._progress, {}
            try_once(lambda: beat.note(self.log.store, notes), self.job.name)
            self._next_note = now + _PROGRESS_SECONDS
        if now < self._next_beat:
            return
        self._next_beat = now + self.job.policy.heartbeat_seconds
        held = {batch.lease.id: batch.lease.token for batch in self._batches.values()}
        held |= {lease.id: lease.token for lease in self._alone}
        if not held:
            return
        answer = try_once(lambda: beat.beat(self.log.store, held, self.job.policy.lease_seconds), self.job.name)
        if answer is None:
            self._next_beat = now + self.job.policy.heartbeat_seconds / 4
            return
        if answer.wanted is not None and self.follow is not None:
            self.follow(answer.wanted)
        self._alone = [lease for lease in self._alone if lease.id not in answer.lost]
        known = {number: job for job, (number, _) in self._moved.items()}
        for number, batch in list(self._batches.items()):
            if batch.lease.id in answer.lost:
                batch.lost = True
                self.observers.emit(LeaseGone(self.job.name, f"lease {batch.lease.id} was lost"))
                for place in batch.unended() if len(batch.lease) == 1 else ():
                    self._end_soon(known.get(number, (number, place)))
                if len(batch.lease) > 1 and self._process is not None:
                    self._process.send(Recall(number))
            for offset in answer.cancel.get(batch.lease.id, ()):
                if offset not in (offsets := batch.lease.events.offsets):
                    continue
                place = offsets.index(offset)
                job = known.get(number, (number, place))
                if not batch.has_ended(place) and job not in self._cancelled:
                    self._cancelled.add(job)
                    self._end_soon(job)

    def _patiently(self, do: Callable[[], T]) -> T | None:
        return patiently(do, self.job.name, self.observers, self._stopping)


def _is_suspect(lease: Lease) -> bool:
    """Whether a job of it may have killed its process."""
    retries: Any = lease.events.retries
    return retries is not None and any((error or "").split(":", 1)[0] in DEATHS for _, _, error, _, _ in retries)


def _cancelled(why: Failure | None) -> Failure:
    text = "cancelled" if why is None or why.code == CANCELLED else f"cancelled: {why.message}"
    return fingerprint.of_text(CANCELLED, text)

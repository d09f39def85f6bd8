"""`isolation="process"`: run handlers in a child process, which may hang, leak or die without harm to other events."""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import replace

from penstock.core import fingerprint
from penstock.core.batch import Events
from penstock.core.job import CANCELLED
from penstock.core.lease import DEATHS, Failure
from penstock.core.signals import failure_of
from penstock.declare.portable import portable
from penstock.declare.subscription import Subscription
from penstock.engine.handlers.runner import Report, TimedOut
from penstock.engine.isolation.child import Begin, Chunk
from penstock.engine.isolation.marks import Mark, Marks
from penstock.engine.isolation.process import Died, HandlerProcess, Loading
from penstock.engine.work import Work
from penstock.errors import HandlerUnreachable

_TICK = 0.05  # seconds between two checks of time and memory
_CHUNK = 2_000  # events per message
_CHUNK_BYTES = 8 * 2**20
_AHEAD = 2  # chunks sent to the child at once, so that it never waits
_GRACE = 2.0  # seconds for a handler to end that was cancelled, or is async and late, before its process is killed
_QUIET_DEATHS = 3  # in a row, between events and without progress, before giving up


class Supervised:
    """The executor that runs leases in a long-lived child process. Use it from one thread: see `HandlerProcess`."""

    def __init__(self, subscription: Subscription, modules: tuple[str, ...] = ()) -> None:
        policy = subscription.policy
        self.subscription = subscription
        self._hello = replace(portable(subscription), modules=modules)
        self.marks = Marks(policy.concurrency, policy.batch_size, shared=True)
        self._process: HandlerProcess | None = None
        slow = any(handler.is_async for handler in subscription.handlers)
        self.limit_seconds = policy.timeout_seconds + (_GRACE if slow else 0.0)
        # A death loses the results of its chunk. So chunks halve with every death, down to one event, and double with
        # every success: even with a leak or a killer event there is progress.
        self.chunk = _CHUNK
        self._quiet = 0
        self._loading = Loading(subscription.name)

    def start(self) -> bool:
        """Have a process ready, with its handlers loaded; False if loading them fails for now."""
        if self._process is None:
            process = HandlerProcess(self._hello, self.marks)
            try:
                process.wait_ready()
            except HandlerUnreachable as error:
                self._loading.failed(process, error)
                return False
            self._process = process
            self._loading.succeeded()
            self._hello = replace(self._hello, modules=())  # a replacement should start quickly
        return True

    def stop(self) -> None:
        """Stop the process and free the marks."""
        self._retire()
        self.marks.close()

    def _retire(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    def run(self, work: Work) -> None:
        """Run the lease in the child until its end, the stop flag, or the child's death."""
        if _died_alone(work.events):
            self._retire()  # give a suspect a fresh process
        elif self._process is not None and self._process.gone():
            self.end()
        if not self.start():
            return  # the lease is released untouched
        assert self._process is not None
        work.began = time.monotonic()
        _Run(self, self._process, work).run()

    def end(self) -> None:
        """Kill the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def succeeded(self) -> None:
        """Note that a chunk was reported."""
        self.chunk = min(_CHUNK, 2 * self.chunk)
        self._quiet = 0

    def died(self, lost: int) -> None:
        """Note that the process died, with a chunk of `lost` events."""
        self.end()
        self.chunk = max(1, min(self.chunk, lost) // 2)

    def died_quietly(self, failure: Failure, *, progress: bool) -> None:
        """Note a death with no event in flight; `HandlerUnreachable` after several without progress."""
        self._quiet = 0 if progress else self._quiet + 1
        if self._quiet >= _QUIET_DEATHS:
            raise HandlerUnreachable(f"The handler process keeps dying between events: {failure.message}.")


class _Run:
    """One lease in one child. It ends when the child dies: an event is only called again after a new claim."""

    def __init__(self, supervised: Supervised, process: HandlerProcess, work: Work) -> None:
        self._supervised = supervised
        self._process = process
        self._work = work
        self._policy = supervised.subscription.policy
        self._next = 0  # the first event not sent yet
        self._sent: deque[tuple[int, int]] = deque()
        self._since: dict[int, tuple[int, float]] = {}  # by slot: its value, since when
        self._looked = time.monotonic()
        # Marks that stay if the report is lost: without a context, a success has no effects to lose.
        plain = not supervised.subscription.may_have_effects
        self._kept = {Mark.UNTOUCHED, Mark.CANCELLED} | ({Mark.DONE} if plain else set())
        self._ending: dict[int, float] = {}  # cancelled events that run: since when that is known
        count = len(work.events)
        self._most = math.ceil(count / max(1, math.ceil(work.events.nbytes() / _CHUNK_BYTES)))

    def run(self) -> None:
        work = self._work
        while self._sent or (self._next < len(work.events) and not work.marks.stop[0]):
            self._send()
            answer = self._process.pump(_TICK)
            if isinstance(answer, Report):
                work.add(answer)
                self._sent.popleft()
                self._supervised.succeeded()
            elif isinstance(answer, Died):
                return self._died(fingerprint.of_text("process_died", f"process_died: {answer}"))
            # Memory first: a process short of memory is also slow.
            if time.monotonic() - self._looked >= _TICK and (verdict := self._verdict()):
                return self._died(*verdict)
        return None

    def _send(self) -> None:
        """Keep up to `_AHEAD` chunks with the child."""
        work = self._work
        while self._next < len(work.events) and len(self._sent) < _AHEAD and not work.marks.stop[0]:
            first, last = self._next, self._next + self._size()
            begin = None if first else Begin(work.token, work.state.frozen())
            kind, body = work.events.pack(first, last)
            self._process.send(Chunk(begin, first, kind, work.events.stream, work.events.claim), body)
            self._sent.append((first, last))
            self._next = last

    def _size(self) -> int:
        """Return the size of the next chunk: equal shares of what is left."""
        left, most = len(self._work.events) - self._next, self._supervised.chunk
        if self._policy.concurrency > 1 and most >= _CHUNK:
            most = left  # slots are idle at the end of every chunk
        share = math.ceil(left / math.ceil(left / min(most, self._most)))
        batch = self._policy.batch
        if batch is not None and most >= _CHUNK:
            share = math.ceil(share / batch) * batch  # do not cut calls short
        return min(left, share)

    # --- what goes wrong -----------------------------------------------------------------------------------------

    def _verdict(self) -> tuple[Failure, int] | tuple[Failure] | None:
        return self._overfed() or self._overdue() or self._unwanted()

    def _unwanted(self) -> tuple[Failure, int] | None:
        """Find an event that was cancelled and does not end."""
        if not self._work.cancelled:
            return None
        running = self._work.marks.running()
        for place, error in [*self._work.cancelled.items()]:
            if place in running and self._looked - self._ending.setdefault(place, self._looked) > _GRACE:
                return fingerprint.of_text(CANCELLED, error), place
        return None

    def _overdue(self) -> tuple[Failure, int] | tuple[Failure] | None:
        """Find an event that runs too long; in a batch call it is not known which."""
        now = self._looked = time.monotonic()
        for slot, value in enumerate(self._work.marks.slots):
            known, since = self._since.get(slot, (0, now))
            if not value or value != known:
                self._since[slot] = (value, now)
            elif now - since > self._supervised.limit_seconds:
                late = failure_of(TimedOut(self._policy.timeout_seconds))
                return (late, value - 1) if self._policy.batch is None else (late,)
        return None

    def _overfed(self) -> tuple[Failure] | None:
        used = self._process.memory_mb()
        if used <= self._policy.memory_mb:
            return None
        why = f"out_of_memory: {used:,.0f} MB in use, memory_mb is {self._policy.memory_mb:,}"
        return (fingerprint.of_text("out_of_memory", why),)

    def _died(self, failure: Failure, culprit: int | None = None) -> None:
        """Blame the event that was alone in flight, or suspect all that were."""
        work = self._work
        work.deaths += 1
        first, last = self._sent[0] if self._sent else (0, 0)
        self._supervised.died(last - first)
        marks = work.marks
        unfinished = (Mark.UNTOUCHED, Mark.RUNNING, Mark.CANCELLED)
        running = [place for place in marks.running() if marks.events[place] in unfinished]
        for slot in range(len(marks.slots)):
            marks.slots[slot] = 0
        if not running:  # it may have died of its report
            running = [place for place in range(first, last) if marks.events[place] not in (*self._kept, Mark.HELD)]
        self._take_back()
        if culprit is not None:
            work.blame(culprit, failure)
        elif len(running) == 1:
            work.blame(running[0], failure)
        elif running:
            work.suspect(running, failure)
        else:
            self._supervised.died_quietly(failure, progress=bool(work.outcomes().count(Mark.DONE)))

    def _take_back(self) -> None:
        """Reset events that were sent and not reported, except those in `_kept`."""
        marks = self._work.marks.events
        for first, last in self._sent:
            for place in range(first, last):
                if marks[place] not in self._kept:
                    marks[place] = Mark.UNTOUCHED
        self._sent.clear()


def _died_alone(events: Events) -> bool:
    """Whether this is a single event that killed its process before, or is suspected of it."""
    error = events.retries[0][2] if len(events) == 1 and events.retries else None
    return error is not None and error.split(":", 1)[0] in DEATHS

"""`isolation="process"`: handlers run in a child that may hang, leak or die without hurting a neighbour."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from dataclasses import replace

from penstock.core import fingerprint
from penstock.core.batch import Events
from penstock.core.lease import DEATHS, Failure
from penstock.core.signals import failure_of
from penstock.declare.portable import portable
from penstock.declare.subscription import Subscription
from penstock.engine.handlers.runner import Report, TimedOut
from penstock.engine.isolation.child import Begin, Chunk
from penstock.engine.isolation.marks import Mark, Marks
from penstock.engine.isolation.process import Died, HandlerProcess
from penstock.engine.work import Work
from penstock.errors import HandlerUnreachable

logger = logging.getLogger("penstock")
_TICK = 0.05  # seconds between two looks at a handler's time and memory
_CHUNK = 2_000  # events sent at once
_CHUNK_BYTES = 8 * 2**20
_AHEAD = 2  # chunks in the child's hands: it never waits for the next one
_GRACE = 2.0  # seconds an async handler has to be cancelled before its process is
_QUIET_DEATHS = 3  # deaths between two messages, in a row and without progress, before we stop trying


class Supervised:
    """Runs leases in a child that is kept warm. One thread only: a child dies with the thread that made it."""

    def __init__(self, subscription: Subscription, modules: tuple[str, ...] = ()) -> None:
        policy = subscription.policy
        self.subscription = subscription
        self._hello = replace(portable(subscription), modules=modules)
        self.marks = Marks(policy.concurrency, policy.batch_size, shared=True)
        self._process: HandlerProcess | None = None
        slow = any(handler.is_async for handler in subscription.handlers)
        self.limit_seconds = policy.timeout_seconds + (_GRACE if slow else 0.0)
        # What was done in a chunk dies with the child. So chunks halve with every death, down to one event, and double
        # with every success: a leak or a killer always leaves progress behind.
        self.chunk = _CHUNK
        self._quiet = 0
        self._loaded = False  # at least once

    def start(self) -> bool:
        """Have a process ready, with its handlers loaded; False if what was loaded before cannot be right now.

        A handler that never loaded is a mistake, and raises. One that did may be killed while it loads again, or need
        something that is away for a moment: that is no reason to end an engine.
        """
        if self._process is None:
            process = HandlerProcess(self._hello, self.marks)
            try:
                process.wait_ready()
            except HandlerUnreachable as error:
                if not self._loaded:
                    raise
                logger.warning("%s: %s It is tried again.", self.subscription.name, error.message)
                return False
            self._process, self._loaded = process, True
            self._hello = replace(self._hello, modules=())  # one that takes over from a dead one is in a hurry
        return True

    def stop(self) -> None:
        """Let the process go, for good."""
        self._retire()
        self.marks.close()

    def _retire(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    def run(self, work: Work) -> None:
        """Feed the lease to the child until its end, until the stop flag is up, or until the child dies."""
        if _died_alone(work.events):
            self._retire()  # what took a process down begins in a fresh one
        elif self._process is not None and self._process.gone():
            self.end()
        if not self.start():
            return  # the lease goes back untouched
        assert self._process is not None
        work.began = time.monotonic()
        _Run(self, self._process, work).run()

    def end(self) -> None:
        """The process is gone, or is to be."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def succeeded(self) -> None:
        """A chunk was reported."""
        self.chunk = min(_CHUNK, 2 * self.chunk)
        self._quiet = 0

    def died(self, lost: int) -> None:
        """The process died with so many events in its hands."""
        self.end()
        self.chunk = max(1, min(self.chunk, lost) // 2)

    def died_quietly(self, failure: Failure, *, progress: bool) -> None:
        """Nothing was in flight, so nobody is to blame."""
        self._quiet = 0 if progress else self._quiet + 1
        if self._quiet >= _QUIET_DEATHS:
            raise HandlerUnreachable(f"The handler's process keeps dying between events: {failure.message}.")


class _Run:
    """One lease in one child. It ends with the child: whatever is called again is claimed anew before."""

    def __init__(self, supervised: Supervised, process: HandlerProcess, work: Work) -> None:
        self._supervised = supervised
        self._process = process
        self._work = work
        self._policy = supervised.subscription.policy
        self._next = 0  # the place of the first event that was not sent
        self._sent: deque[tuple[int, int]] = deque()
        self._since: dict[int, tuple[int, float]] = {}  # slot -> (what is in it, since when)
        self._looked = time.monotonic()
        # Marks that stay if the report is lost: a success is one only where there is nothing else to report.
        plain = not supervised.subscription.wants_context
        self._kept = {Mark.UNTOUCHED, Mark.DONE} if plain else {Mark.UNTOUCHED}
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
            # Memory first: who runs out of it is late, too.
            if time.monotonic() - self._looked >= _TICK and (verdict := self._overfed() or self._overdue()):
                return self._died(*verdict)
        return None

    def _send(self) -> None:
        """Keep the child's hands full."""
        work = self._work
        while self._next < len(work.events) and len(self._sent) < _AHEAD and not work.marks.stop[0]:
            first, last = self._next, self._next + self._size()
            begin = None if first else Begin(work.token, work.state.frozen())
            kind, body = work.events.pack(first, last)
            self._process.send(Chunk(begin, first, kind, work.events.stream, work.events.claim), body)
            self._sent.append((first, last))
            self._next = last

    def _size(self) -> int:
        """How many events to send next: equal shares of what is left."""
        left, most = len(self._work.events) - self._next, self._supervised.chunk
        if self._policy.concurrency > 1 and most >= _CHUNK:
            most = left  # every end of a chunk is a moment at which slots are idle
        share = math.ceil(left / math.ceil(left / min(most, self._most)))
        batch = self._policy.batch
        if batch is not None and most >= _CHUNK:
            share = math.ceil(share / batch) * batch  # no call is cut short by the end of a chunk
        return min(left, share)

    # --- what goes wrong -----------------------------------------------------------------------------------------

    def _overdue(self) -> tuple[Failure, int] | tuple[Failure] | None:
        """The event that has been running for too long; of a call of many nobody knows which it is."""
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
        """Blame the event that was alone in flight; where there were several, they are suspects."""
        work = self._work
        work.deaths += 1
        first, last = self._sent[0] if self._sent else (0, 0)
        self._supervised.died(last - first)
        marks = work.marks
        running = [place for place in marks.running() if marks.events[place] in (Mark.UNTOUCHED, Mark.RUNNING)]
        for slot in range(len(marks.slots)):
            marks.slots[slot] = 0
        if not running:  # it may have died of what it was about to report
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
        """What was sent and not reported goes back; only what left no trace but its mark stays done."""
        marks = self._work.marks.events
        for first, last in self._sent:
            for place in range(first, last):
                if marks[place] not in self._kept:
                    marks[place] = Mark.UNTOUCHED
        self._sent.clear()


def _died_alone(events: Events) -> bool:
    """Whether this is an event that took its process down, or may have done so, and is alone for that reason."""
    error = events.retries[0][2] if len(events) == 1 and events.retries else None
    return error is not None and error.split(":", 1)[0] in DEATHS

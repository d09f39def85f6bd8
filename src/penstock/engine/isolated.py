"""`isolation="process"`: handlers run in a child that may hang, leak or die without hurting a neighbour."""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import replace

from penstock.core.lease import Failure
from penstock.core.limits import SOLO_DEATHS
from penstock.engine.child import Begin, Chunk
from penstock.engine.marks import Mark, Marks
from penstock.engine.process import Died, HandlerProcess
from penstock.engine.running import Report, TimedOut, failure_of
from penstock.engine.subscription import Subscription
from penstock.engine.travelling import travelling
from penstock.engine.work import Work
from penstock.errors import HandlerUnreachable

_TICK = 0.05  # seconds between two looks at a handler's time and memory
_CHUNK = 2_000  # events sent at once
_CHUNK_BYTES = 8 * 2**20
_AHEAD = 2  # chunks in the child's hands: it never waits for the next one
_GRACE = 2.0  # seconds an async handler has to be cancelled before its process is
_QUIET_DEATHS = 3  # deaths between two messages, in a row, before we stop trying


class Isolated:
    """Runs leases in a child that is kept warm. One thread only: a child dies with the thread that made it."""

    def __init__(self, subscription: Subscription, modules: tuple[str, ...] = ()) -> None:
        policy = subscription.policy
        self._subscription = subscription
        self._hello = replace(travelling(subscription), modules=modules)
        self.marks = Marks(policy.concurrency, policy.batch_size, shared=True)
        self._process: HandlerProcess | None = None
        slow = any(handler.is_async for handler in subscription.handlers)
        self._limit = policy.timeout_seconds + (_GRACE if slow else 0.0)

    def start(self) -> None:
        """Have a process ready, with its handlers loaded."""
        if self._process is None:
            self._process = HandlerProcess(self._hello, self.marks)
            self._process.wait_ready()
            self._hello = replace(self._hello, modules=())  # one that takes over from a dead one is in a hurry

    def stop(self) -> None:
        """Let the process go, for good."""
        self._retire()
        self.marks.close()

    def _retire(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    def run(self, work: Work) -> None:
        """Feed the lease to the child until its end, or until the stop flag is up."""
        if any(_killed_before(error) for _, _, error, _ in work.events.retries or ()):
            self._retire()  # whatever took a process down before begins in a fresh one
        _Run(self, work).run()

    def process(self) -> HandlerProcess:
        """The process, started if need be."""
        self.start()
        assert self._process is not None
        return self._process

    def end(self) -> None:
        """The process is gone, or is to be."""
        if self._process is not None:
            self._process.kill()
            self._process = None


class _Run:
    """One lease, through as many children as it takes."""

    def __init__(self, isolated: Isolated, work: Work) -> None:
        self._isolated = isolated
        self._work = work
        self._policy = isolated._subscription.policy
        self._waiting = deque(self._chunks())
        self._sent: deque[tuple[int, int]] = deque()
        self._alone = 0  # up to this place, one after the other: several were in flight when a process died
        self._begun: HandlerProcess | None = None
        self._since: dict[int, tuple[int, float]] = {}  # slot -> (what is in it, since when)
        self._quiet = 0
        self._looked = time.monotonic()

    def run(self) -> None:
        while self._sent or (self._waiting and not self._work.marks.stop[0]):
            process = self._isolated.process()
            self._send(process)
            answer = process.pump(_TICK)
            if isinstance(answer, Report):
                self._work.add(answer)
                self._sent.popleft()
                self._quiet = 0
            elif isinstance(answer, Died):
                self._died(Failure("process_died", f"process_died: {answer}"))
                continue
            if time.monotonic() - self._looked >= _TICK and (verdict := self._overdue() or self._overfed(process)):
                self._died(*verdict)

    def _chunks(self) -> list[tuple[int, int]]:
        count = len(self._work.events)
        if not count:
            return []
        parts = math.ceil(count / _CHUNK)
        if self._policy.concurrency > 1:
            parts = 1  # every end of a chunk is a moment at which slots are idle
        parts = max(parts, math.ceil(self._work.events.nbytes() / _CHUNK_BYTES))
        size = math.ceil(count / parts)
        return [(first, min(first + size, count)) for first in range(0, count, size)]

    def _send(self, process: HandlerProcess) -> None:
        """Keep the child's hands full."""
        work = self._work
        while self._waiting and len(self._sent) < _AHEAD and not work.marks.stop[0]:
            first, last = self._waiting.popleft()
            alone = first < self._alone
            if alone and last > self._alone:
                self._waiting.appendleft((self._alone, last))
                last = self._alone
            begin = None
            if self._begun is not process:
                for key, written in work.written.items():
                    work.state.keep(key, written)
                for recorded in work.effects.values():
                    if recorded.key is not None:
                        work.state.keep(recorded.key, recorded.state)
                begin = Begin(work.token, work.state.frozen(), work.held(), bool(work.effects))
                self._begun = process
            kind, body = work.events.pack(first, last)
            process.send(Chunk(begin, first, alone, kind, work.events.stream, work.events.claim), body)
            self._sent.append((first, last))

    # --- what goes wrong -----------------------------------------------------------------------------------------

    def _overdue(self) -> tuple[Failure, int] | None:
        """The event that has been running for too long."""
        now = self._looked = time.monotonic()
        for slot, value in enumerate(self._work.marks.slots):
            known, since = self._since.get(slot, (0, now))
            if not value or value != known:
                self._since[slot] = (value, now)
            elif now - since > self._isolated._limit:
                return failure_of(TimedOut(self._policy.timeout_seconds)), value - 1
        return None

    def _overfed(self, process: HandlerProcess) -> tuple[Failure] | None:
        used = process.memory_mb()
        if used <= self._policy.memory_mb:
            return None
        return (
            Failure("out_of_memory", f"out_of_memory: {used:,.0f} MB in use, memory_mb is {self._policy.memory_mb:,}"),
        )

    def _died(self, failure: Failure, culprit: int | None = None) -> None:
        """Blame the event that was alone in flight; where there were several, run them again one after the other."""
        work = self._work
        work.deaths += 1
        self._isolated.end()
        self._since.clear()
        running = work.marks.running()
        for slot in range(len(work.marks.slots)):
            work.marks.slots[slot] = 0
        self._take_back()
        if culprit is None and len(running) == 1:
            culprit = running[0]
        if culprit is not None:
            work.blame(culprit, failure)
            self._quiet = 0
            if work.deaths >= SOLO_DEATHS and not work.outcomes().count(Mark.DONE):
                work.marks.stop[0] = 1  # let the crash-loop guard see it before more of them die
        elif running:
            self._alone = max(running) + 1
            work.suspects = bool(work.marks.stop[0])  # no time left to find the culprit: smaller leases will
        else:
            self._quiet += 1
            if self._quiet >= _QUIET_DEATHS:
                raise HandlerUnreachable(f"The handler's process keeps dying between events: {failure.message}.")

    def _take_back(self) -> None:
        """What was sent and not reported is sent again; only what left no trace but its mark stays done."""
        work = self._work
        keep_done = not self._isolated._subscription.wants_context
        for first, last in self._sent:
            for place in range(first, last):
                known = place in work.failed or place in work.dead
                if not known and not (keep_done and work.marks.events[place] == Mark.DONE):
                    work.marks.events[place] = Mark.UNTOUCHED
        self._waiting.extendleft(reversed(self._sent))
        self._sent.clear()


def _killed_before(last_error: str | None) -> bool:
    return last_error is not None and last_error.startswith(
        ("process_died", "out_of_memory", "timed_out", "lease_expired")
    )

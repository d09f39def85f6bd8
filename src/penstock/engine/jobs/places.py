"""The places of a job type's process: each does one job after the other, and reports it when it has ended."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from penstock.core import ambient, codec
from penstock.core.batch import Event, Events
from penstock.core.lease import Failure
from penstock.core.signals import Permanent, Unavailable, failure_of, is_a
from penstock.declare.job import JobType
from penstock.engine.handlers.middleware import run, run_async
from penstock.engine.handlers.runner import TimedOut, is_final
from penstock.engine.isolation.marks import Marks
from penstock.engine.jobs.context import JobContext, decoder
from penstock.engine.jobs.fed import Fed
from penstock.engine.jobs.inbox import Inbox
from penstock.engine.jobs.messages import Outcomes, Recalled, number_of
from penstock.errors import InvalidHandler

REPORT_SECONDS = 0.02  # between two reports while there is more to do
_INVALID = "invalid_job"


class Places:
    """A queue of batches, and what is known of the jobs that have begun. Its lock is never held while a job runs."""

    def __init__(self, job: JobType, marks: Marks, send: Callable[[Any], None]) -> None:
        self._job = job
        self._middleware = job.around.middleware
        self._decode = decoder(job)
        self._slots = marks.slots
        self._send = send
        self._lock = threading.Lock()
        self._filled = threading.Condition(self._lock)
        self._queue: deque[Fed] = deque()  # batches with jobs that have not begun
        self._fed: dict[int, Fed] = {}  # batches with jobs that were not reported, by number
        self._busy = [0.0] * job.policy.concurrency  # seconds of work, by slot …
        self._counted = 0.0  # … and how many of them were reported
        self._outcomes = Outcomes()
        self._messages: list[Any] = []  # to be sent before the outcomes
        self._pending = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._looping = threading.Event()  # it runs
        self._arrived: asyncio.Event | None = None  # a job, or a place that is free again
        self._tasks: dict[tuple[int, int], asyncio.Task[None]] = {}

    # --- for the process -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the places, in threads of their own; if there is only one, `work_here` is called."""
        threading.Thread(target=self._report, daemon=True).start()
        if self._job.one_by_one:
            return
        if self._job.is_async:
            threading.Thread(target=lambda: asyncio.run(self._work_async()), daemon=True).start()
            return
        for slot in range(self._job.policy.concurrency):
            threading.Thread(target=self._work, args=(slot,), daemon=True).start()

    def in_loop(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine to its end, in the event loop of async jobs; not from that loop's own thread."""
        self._looping.wait()
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def feed(self, batch: int, events: Events, token: int) -> None:
        """Add the jobs of a batch to the queue."""
        fed = Fed(batch, events, token)
        with self._filled:
            self._fed[batch] = fed
            self._queue.append(fed)
            self._filled.notify(len(events))
        self._wake_loop()

    def recall(self, batch: int) -> None:
        """Give back what has not begun of a batch; report what has ended first."""
        with self._lock:
            fed = self._fed.get(batch)
            if fed is not None:
                fed.give_back()
            self._set_aside()
            self._messages.append(Recalled(batch, frozenset() if fed is None else fed.running()))
        self._pending.set()

    def cancel(self, batch: int, place: int) -> None:
        """Tell a job to end; if it has not begun, it will not."""
        with self._lock:
            fed = self._fed.get(batch)
        if fed is not None:
            fed.unwanted.add(place)
        self._cancel_task((batch, place))

    def _first(self) -> Fed | None:
        """Return the first batch with a job that waits; the caller has the lock."""
        while self._queue and not self._queue[0].waits:
            self._queue.popleft()
        return self._queue[0] if self._queue else None

    # --- in threads ----------------------------------------------------------------------------------------------

    def work_here(self, inbox: Inbox) -> None:
        """Do jobs in this thread, which also reads the inbox while there are none, until that is closed."""
        while True:
            with self._lock:
                fed = self._first()
            if fed is not None:
                inbox.is_busy()
                self._do_traced(fed, 0)
            elif not inbox.read(self._has_work):
                return

    def _has_work(self) -> bool:
        with self._lock:
            return self._first() is not None

    def _work(self, slot: int) -> None:
        while True:
            with self._filled:
                while (fed := self._first()) is None:
                    self._filled.wait()
            self._do_traced(fed, slot)

    def _do_traced(self, fed: Fed, slot: int) -> None:
        def current() -> Event | None:
            place = self._slots[slot] - number_of(fed.number, 0)
            return fed.events[place] if place >= 0 else None

        with ambient.handling(current):
            self._do(fed, slot)

    def _do(self, fed: Fed, slot: int) -> None:
        """Do jobs of a batch while some of them wait; in one loop, because every call saved is saved per job."""
        slots, busy, pending, clock = self._slots, self._busy, self._pending, time.perf_counter
        bare = self._job.takes_payload and not self._job.wants_context and not self._middleware
        function, decode, payloads, unwanted = self._job.function, self._decode, fed.events.payloads, fed.unwanted
        number, ended = number_of(fed.number, 0), fed.ended
        began = clock()
        for place in fed.waiting:  # shared with the other threads
            slots[slot] = number + place
            context = None
            try:
                if bare and place not in unwanted:
                    try:
                        given = decode(payloads[place])
                    except BaseException as error:
                        raise _Invalid(error) from error
                    result = function(given)
                else:
                    context = self._context(fed, place)
                    result = self._call(context)
                if result is not None and inspect.isawaitable(result):
                    raise InvalidHandler("The job's function returned a coroutine: declare it with `async def`.")
            except BaseException as error:  # SystemExit, too, is an outcome of the job
                self._ended(fed, place, context, None, error)
            else:
                if result is not None or context is not None:
                    self._ended(fed, place, context, result, None)
                else:
                    ended.append(place)
            slots[slot] = 0
            now = clock()
            busy[slot] += now - began
            began = now
            if not pending.is_set():
                pending.set()

    def _context(self, fed: Fed, place: int) -> JobContext:
        def note(done: float | None, message: str | None) -> None:
            with self._lock:
                self._outcomes.progress[fed.number, place] = (done, message)
            self._pending.set()

        return JobContext(fed.events[place], fed.token, lambda: place in fed.unwanted, note)

    def _call(self, context: JobContext) -> Any:
        if context.cancelled:
            raise Permanent("cancelled before it began")
        try:
            given = self._decode(context.job.payload)
        except BaseException as error:
            raise _Invalid(error) from error
        given_to_it = [given] if self._job.takes_payload else []
        if self._job.wants_context:
            given_to_it.append(context)
        inner = partial(self._job.function, *given_to_it)
        if not self._middleware:
            return inner()
        around = run_async if self._job.is_async else run
        return around(self._middleware, inner, context.job, context)

    def _ended(
        self, fed: Fed, place: int, context: JobContext | None, result: Any, error: BaseException | None
    ) -> None:
        """Note how a job ended, together with that it has: a report has both or neither."""
        job = (fed.number, place)
        text = None
        if error is None and result is not None:
            try:
                text = codec.encode_json(result).decode()
            except BaseException as refused:  # raised by the user's own classes
                error = refused
        invalid = isinstance(error, _Invalid)
        failure = None if error is None else _failure(error)
        final = invalid or (error is not None and is_final(error, self._job.policy.retry))
        with self._lock:
            outcomes = self._outcomes
            if failure is None or (invalid and self._job.policy.on_invalid == "complete"):
                if text is not None:
                    outcomes.results[job] = text
                if context is not None and context.recorded is not None and failure is None:
                    outcomes.effects[job] = context.recorded
            elif is_a(error, Unavailable):
                outcomes.unavailable[job] = failure
            else:
                (outcomes.dead if final else outcomes.failed)[job] = failure
            fed.ended.append(place)

    # --- in an event loop ----------------------------------------------------------------------------------------

    async def _work_async(self) -> None:
        self._arrived = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._looping.set()
        free = list(range(self._job.policy.concurrency))
        while True:
            self._arrived.clear()
            while free:
                with self._lock:
                    fed = self._first()
                if fed is None:
                    break
                if (place := next(fed.waiting, None)) is None:
                    continue  # given back since
                slot = free.pop()
                self._slots[slot] = number_of(fed.number, place)
                task = asyncio.create_task(self._do_async(fed, place, slot))
                self._tasks[fed.number, place] = task
                task.add_done_callback(partial(self._freed, fed, place, slot, free))
            await self._arrived.wait()

    def _freed(self, fed: Fed, place: int, slot: int, free: list[int], task: asyncio.Task[None]) -> None:
        self._tasks.pop((fed.number, place), None)
        if task.cancelled():  # before its first step: then nobody has reported it
            self._ended(fed, place, None, None, asyncio.CancelledError())
            self._slots[slot] = 0
            self._pending.set()
        free.append(slot)
        assert self._arrived is not None
        self._arrived.set()

    async def _do_async(self, fed: Fed, place: int, slot: int) -> None:
        began = time.perf_counter()
        context = self._context(fed, place)
        seconds = self._job.policy.timeout_seconds
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                with ambient.handling(lambda: context.job):
                    result = await self._call(context)
            self._ended(fed, place, context, result, None)
        except BaseException as error:
            late = is_a(error, TimeoutError) and limit.expired() and seconds is not None
            self._ended(fed, place, context, None, TimedOut(seconds or 0) if late else error)
        self._slots[slot] = 0
        self._busy[slot] += time.perf_counter() - began
        self._pending.set()

    def _wake_loop(self) -> None:
        if self._loop is not None and self._arrived is not None:
            self._loop.call_soon_threadsafe(self._arrived.set)

    def _cancel_task(self, job: tuple[int, int]) -> None:
        loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(lambda: (task := self._tasks.get(job)) is not None and task.cancel())

    # --- reports -------------------------------------------------------------------------------------------------

    def _report(self) -> None:
        """Send what has ended: at once if nothing waits, else now and then, however long the neighbours take."""
        while True:
            self._pending.wait()
            self._pending.clear()  # before looking, so that what ends from now on is looked for again
            with self._lock:
                self._set_aside()
                messages, self._messages = self._messages, []
                busy = self._first() is not None
            for message in messages:
                self._send(message)
            if busy:
                time.sleep(REPORT_SECONDS)

    def _set_aside(self) -> None:
        """Make a message of what has ended since the last one."""
        outcomes = self._outcomes
        for fed in [*self._fed.values()]:
            if places := fed.news():
                outcomes.ended[fed.number] = places
            if fed.is_over:
                del self._fed[fed.number]
        if outcomes:
            busy = sum(self._busy)
            outcomes.seconds, self._counted = busy - self._counted, busy
            self._messages.append(outcomes)
            self._outcomes = Outcomes()


class _Invalid(Exception):
    """The payload is not what the type's schema says."""

    code = _INVALID

    def __init__(self, error: BaseException) -> None:
        self.failure = failure_of(error)
        super().__init__(f"{_INVALID}: {self.failure.message}")


def _failure(error: BaseException) -> Failure:
    """Describe why a job did not succeed."""
    if isinstance(error, _Invalid):
        return error.failure._replace(code=_INVALID, message=str(error))
    return failure_of(error)

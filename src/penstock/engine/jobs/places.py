"""The places of a job type's process: each does one job after the other, and reports it when it has ended."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple

from penstock.core import codec
from penstock.core.batch import Event, Events
from penstock.core.lease import Failure
from penstock.core.signals import Permanent, Unavailable, failure_of, is_a
from penstock.declare.job import JobType
from penstock.engine.handlers.middleware import run, run_async
from penstock.engine.handlers.runner import TimedOut, is_final
from penstock.engine.isolation.marks import Marks
from penstock.engine.jobs.context import JobContext, arguments
from penstock.engine.jobs.messages import Outcomes, Recalled, number_of
from penstock.errors import InvalidHandler

REPORT_SECONDS = 0.02  # between two reports while there is more to do
_INVALID = "invalid_job"


class Waiting(NamedTuple):
    """A job that waits for a place."""

    batch: int
    place: int
    event: Event
    token: int


class Places:
    """A queue of jobs, and what is known of those that have begun. Its lock is never held while a job runs."""

    def __init__(self, job: JobType, marks: Marks, send: Callable[[Any], None]) -> None:
        self._job = job
        self._middleware = job.around.middleware
        self._slots = marks.slots
        self._send = send
        self._lock = threading.Lock()
        self._filled = threading.Condition(self._lock)
        self._queue: deque[Waiting] = deque()
        self._running: dict[tuple[int, int], list[bool]] = {}  # whether each should end
        self._began = [0.0] * job.policy.concurrency  # by slot
        self._unwanted: set[tuple[int, int]] = set()  # cancelled before they have begun
        self._outcomes = Outcomes()
        self._messages: list[Any] = []  # to be sent before the outcomes
        self._pending = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._looping = threading.Event()  # it runs
        self._arrived: asyncio.Event | None = None  # a job, or a place that is free again
        self._tasks: dict[tuple[int, int], asyncio.Task[None]] = {}

    # --- for the process -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the places, in threads of their own."""
        threading.Thread(target=self._report, daemon=True).start()
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
        waiting = [Waiting(batch, place, event, token) for place, event in enumerate(events)]
        with self._filled:
            self._queue.extend(waiting)
            self._filled.notify(len(waiting))
        self._wake_loop()

    def recall(self, batch: int) -> None:
        """Give back what has not begun of a batch; report what has ended first."""
        with self._lock:
            self._queue = deque(one for one in self._queue if one.batch != batch)
            running = frozenset(place for of, place in self._running if of == batch)
            self._set_aside()
            self._messages.append(Recalled(batch, running))
        self._pending.set()

    def cancel(self, batch: int, place: int) -> None:
        """Tell a running job to end."""
        with self._lock:
            flag = self._running.get((batch, place))
            if flag is not None:
                flag[0] = True
            elif any((one.batch, one.place) == (batch, place) for one in self._queue):
                self._unwanted.add((batch, place))
        self._cancel_task((batch, place))

    # --- in threads ----------------------------------------------------------------------------------------------

    def _work(self, slot: int) -> None:
        while True:
            with self._filled:
                while not self._queue:
                    self._filled.wait()
                one = self._queue.popleft()
                flag = self._begin(one, slot)
            context = self._context(one, flag)
            try:
                result = self._call(one.event, context)
                if inspect.isawaitable(result):
                    raise InvalidHandler("The job's function returned a coroutine: declare it with `async def`.")
                self._ended(one, slot, context, result, None)
            except BaseException as error:  # SystemExit, too, is an outcome of the job
                self._ended(one, slot, context, None, error)

    def _begin(self, one: Waiting, slot: int) -> list[bool]:
        flag = [(one.batch, one.place) in self._unwanted]
        self._unwanted.discard((one.batch, one.place))
        self._running[one.batch, one.place] = flag
        self._slots[slot] = number_of(one.batch, one.place)
        self._began[slot] = time.perf_counter()
        return flag

    def _context(self, one: Waiting, flag: list[bool]) -> JobContext:
        def note(done: float | None, message: str | None) -> None:
            with self._lock:
                self._outcomes.progress[one.batch, one.place] = (done, message)
            self._pending.set()

        return JobContext(one.event, one.token, flag, note)

    def _call(self, event: Event, context: JobContext) -> Any:
        if context.cancelled:
            raise Permanent("cancelled before it began")
        try:
            given = arguments(self._job, event)
        except BaseException as error:
            raise _Invalid(error) from error
        given_to_it = [given] if self._job.takes_payload else []
        if self._job.wants_context:
            given_to_it.append(context)
        inner = partial(self._job.function, *given_to_it)
        if not self._middleware:
            return inner()
        around = run_async if self._job.is_async else run
        return around(self._middleware, inner, event, context)

    def _ended(self, one: Waiting, slot: int, context: JobContext, result: Any, error: BaseException | None) -> None:
        job = (one.batch, one.place)
        text = None
        if error is None and result is not None:
            try:
                text = codec.encode_json(result).decode()
            except Exception as refused:
                error = refused
        invalid = isinstance(error, _Invalid)
        failure = None if error is None else _failure(error)
        final = invalid or (error is not None and is_final(error, self._job.policy.retry))
        with self._lock:
            outcomes = self._outcomes
            if failure is None or (invalid and self._job.policy.on_invalid == "complete"):
                if text is not None:
                    outcomes.results[job] = text
                if context.recorded is not None and failure is None:
                    outcomes.effects[job] = context.recorded
            elif is_a(error, Unavailable):
                outcomes.unavailable[job] = failure
            else:
                (outcomes.dead if final else outcomes.failed)[job] = failure
            outcomes.ended.append(job)
            outcomes.seconds += time.perf_counter() - self._began[slot]
            self._slots[slot] = 0
            del self._running[job]
        self._pending.set()

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
                    if not self._queue:
                        break
                    one = self._queue.popleft()
                    slot = free.pop()
                    flag = self._begin(one, slot)
                task = asyncio.create_task(self._do_async(one, slot, flag))
                self._tasks[one.batch, one.place] = task
                task.add_done_callback(partial(self._freed, one, slot, free))
            await self._arrived.wait()

    def _freed(self, one: Waiting, slot: int, free: list[int], _: asyncio.Task[None]) -> None:
        self._tasks.pop((one.batch, one.place), None)
        free.append(slot)
        assert self._arrived is not None
        self._arrived.set()

    async def _do_async(self, one: Waiting, slot: int, flag: list[bool]) -> None:
        context = self._context(one, flag)
        seconds = self._job.policy.timeout_seconds
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                result = await self._call(one.event, context)
            self._ended(one, slot, context, result, None)
        except BaseException as error:
            late = is_a(error, TimeoutError) and limit.expired() and seconds is not None
            self._ended(one, slot, context, None, TimedOut(seconds or 0) if late else error)

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
            self._pending.clear()
            with self._lock:
                self._set_aside()
                messages, self._messages = self._messages, []
                busy = bool(self._queue)
            for message in messages:
                self._send(message)
            if busy:
                time.sleep(REPORT_SECONDS)

    def _set_aside(self) -> None:
        if self._outcomes:
            self._messages.append(self._outcomes)
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

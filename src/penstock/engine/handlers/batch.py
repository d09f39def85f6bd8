"""Batch handlers (`batch=`): one call for many events, an outcome for each.

In ordered and keyed groups a call has at most one event per key, so that none depends on another that fails. If a call
raises, its events become suspects: they are claimed again in smaller leases until the culprit is called alone. They are
not called again within the lease, because every call is an attempt and needs a claim.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from penstock.core.batch import Chosen, Event
from penstock.core.event import parse_event_id
from penstock.core.signals import Permanent, Unavailable, failure_of, is_a
from penstock.declare.subscription import Handler, Subscription
from penstock.engine.handlers.context import BatchContext
from penstock.engine.handlers.key_turns import Turns
from penstock.engine.handlers.middleware import surrounded
from penstock.engine.handlers.runner import Part, Runner, TimedOut
from penstock.engine.isolation.marks import Mark
from penstock.errors import InvalidHandler

Indexes = Sequence[int]


def runner_for(subscription: Subscription) -> Runner:
    """Make the runner of a group: for batch handlers, or for single events."""
    whole = surrounded(subscription)
    return Runner(whole) if whole.policy.batch is None else BatchRunner(whole)


class BatchRunner(Runner):
    """The runner of a group with batch handlers."""

    def __init__(self, subscription: Subscription) -> None:
        super().__init__(subscription)
        handlers = subscription.handlers
        self._single = handlers[0] if len(handlers) == 1 and handlers[0].types is None else None
        self._is_async = any(handler.is_async for handler in handlers)

    def _call_all(self, part: Part) -> None:
        if self._is_async:
            self.in_loop(self._calls_async(part))
        else:
            self._calls(part)

    # --- one after the other, or several at once --------------------------------------------------------------------

    def _calls(self, part: Part) -> None:
        waiting = _Waiting(self, part)
        if self._policy.concurrency == 1:
            while (indexes := waiting.take()) is not None:
                self._work(part, indexes, 0)
                waiting.done(indexes)
            return
        changed = threading.Condition()
        running = 0

        def work(slot: int) -> None:
            nonlocal running
            while True:
                with changed:
                    while (indexes := waiting.take()) is None and running:
                        changed.wait()
                    if indexes is None:
                        changed.notify_all()
                        return
                    running += 1
                self._work(part, indexes, slot)
                with changed:
                    running -= 1
                    waiting.done(indexes)
                    changed.notify_all()

        threads = [threading.Thread(target=work, args=(slot,), daemon=True) for slot in range(self._policy.concurrency)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    async def _calls_async(self, part: Part) -> None:
        waiting = _Waiting(self, part)
        free = list(range(self._policy.concurrency))
        running: dict[asyncio.Task[None], tuple[Indexes, int]] = {}
        while True:
            while free and (indexes := waiting.take()) is not None:
                slot = free.pop()
                task = asyncio.create_task(self._work_async(part, indexes, slot))
                running[task] = (indexes, slot)
            if not running:
                return
            finished, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in finished:
                indexes, slot = running.pop(task)
                free.append(slot)
                waiting.done(indexes)

    def uncancelled(self, part: Part, taken: Indexes) -> Indexes:
        """Return the events that nobody has cancelled."""
        cancels, base = part.marks.cancels, part.base
        if not any(cancels[base + taken[0] : base + taken[-1] + 1]):
            return taken
        return [index for index in taken if not cancels[base + index] or not self._held(part, index)]

    # --- a call -----------------------------------------------------------------------------------------------------

    def _work(self, part: Part, taken: Indexes, slot: int) -> None:
        for handler, indexes in self._by_handler(part, taken):
            context = self._begin(part, handler, indexes, slot)
            try:
                events = _events(handler, part, indexes)
                answer = handler.function(events) if context is None else handler.function(events, context)
                errors = _errors(part, indexes, answer)
            except BaseException as error:  # SystemExit, too, is an outcome of the events
                self._raised(part, indexes, error)
            else:
                self._settle(part, indexes, errors, context)
            part.marks.slots[slot] = 0

    async def _work_async(self, part: Part, taken: Indexes, slot: int) -> None:
        for handler, indexes in self._by_handler(part, taken):
            context = self._begin(part, handler, indexes, slot)
            limit = asyncio.timeout(self._policy.timeout_seconds)
            try:
                events = _events(handler, part, indexes)
                async with limit:
                    answer = await (handler.function(events) if context is None else handler.function(events, context))
                errors = _errors(part, indexes, answer)
            except BaseException as error:
                late = is_a(error, TimeoutError) and limit.expired()
                self._raised(part, indexes, TimedOut(self._policy.timeout_seconds) if late else error)
            else:
                self._settle(part, indexes, errors, context)
            part.marks.slots[slot] = 0

    def _by_handler(self, part: Part, taken: Indexes) -> list[tuple[Handler, Indexes]]:
        if self._single is not None:
            return [(self._single, taken)]
        calls: dict[int, tuple[Handler, list[int]]] = {}
        for index in taken:
            try:
                handler = self._handler(part.events.event_types[index])
            except Permanent as error:
                self._failed(part, index, error)
            else:
                calls.setdefault(id(handler), (handler, []))[1].append(index)
        return list(calls.values())

    def _begin(self, part: Part, handler: Handler, indexes: Indexes, slot: int) -> BatchContext | None:
        part.marks.slots[slot] = part.base + indexes[0] + 1
        _mark(part, indexes, Mark.RUNNING)
        if not handler.wants_context:
            return None
        return BatchContext(part.events, indexes, part.token, partial(self._context, part))

    # --- outcomes -----------------------------------------------------------------------------------------------------

    def _settle(
        self, part: Part, indexes: Indexes, errors: Mapping[int, BaseException | str], context: BatchContext | None
    ) -> None:
        made = {} if context is None else context.made
        if not errors and not made:
            _mark(part, indexes, Mark.DONE)
            return
        for index in indexes:
            error = errors.get(index)
            if error is None:
                try:
                    self._done(part, index, made.get(index))
                except Exception as refused:  # an effect that cannot be recorded
                    error = refused
            if error is not None:
                self._failed(part, index, error)

    def _raised(self, part: Part, indexes: Indexes, error: BaseException) -> None:
        """Blame an event that was alone, suspect several; an unavailable target is nobody's fault."""
        if len(indexes) == 1 or is_a(error, Unavailable):
            for index in indexes:
                self._failed(part, index, error)
        else:
            failure = failure_of(error)
            for index in indexes:
                self._unresolved(part, index)
                part.report.suspects[part.base + index] = failure
            _mark(part, indexes, Mark.FAILED)


class _Waiting:
    """The events of a part that were not called yet."""

    def __init__(self, runner: BatchRunner, part: Part) -> None:
        self._runner = runner
        self._part = part
        self._size = runner._policy.batch or 1
        by_key = runner._ordered or runner._keyed
        marks, base = part.marks.events, part.base
        self._untouched = [index for index in range(len(part.events)) if not marks[base + index]]
        self._next = 0
        self._turns = Turns(self._untouched, part.events.ordering_keys) if by_key else None

    def take(self) -> Indexes | None:
        """Return the events of the next call; None at the end, or until a running call frees a key."""
        if self._part.marks.stop[0]:
            return None
        if self._turns is None:
            while self._next < len(self._untouched):
                taken = self._untouched[self._next : self._next + self._size]
                self._next += len(taken)
                if wanted := self._runner.uncancelled(self._part, taken):
                    return wanted
            return None
        taken = []
        while len(taken) < self._size and (index := self._turns.take()) is not None:
            if self._runner._held(self._part, index):
                self._turns.done(index)
            else:
                taken.append(index)
        return sorted(taken) or None

    def done(self, indexes: Indexes) -> None:
        """Let the next events of these keys start."""
        if self._turns is not None:
            for index in indexes:
                self._turns.done(index)


def _mark(part: Part, indexes: Indexes, mark: Mark) -> None:
    marks, base = part.marks.events, part.base
    first, last = indexes[0], indexes[-1]
    if last - first + 1 == len(indexes):
        marks[base + first : base + last + 1] = bytes([mark]) * len(indexes)
        return
    for index in indexes:
        marks[base + index] = mark


def _events(handler: Handler, part: Part, indexes: Indexes) -> Sequence[Event]:
    """Return what a handler gets: a list, except for one of our own that does without an object for each event."""
    if getattr(handler.function, "takes_chosen", False):
        return Chosen(part.events, indexes)
    return [Event(part.events, index) for index in indexes]


def _errors(part: Part, indexes: Indexes, answer: Any) -> dict[int, BaseException | str]:
    """Return the errors that a handler returned, by index; raise if its answer is invalid."""
    if answer is None:
        return {}
    if inspect.iscoroutine(answer):
        answer.close()  # nobody awaits it
    if not isinstance(answer, Mapping):
        raise InvalidHandler(f"A batch handler returns None or {{event_id: error}}, not {type(answer).__name__}.")
    found: dict[int, BaseException | str] = {}
    known: dict[uuid.UUID, int] = {}
    for name, error in answer.items():
        if not known:
            known = {Event(part.events, index).event_id: index for index in indexes}
        event_id = name.event_id if isinstance(name, Event) else parse_event_id(name)
        if event_id not in known:
            raise InvalidHandler(f"A batch handler named the event {event_id}, which was not in its call.")
        if error is not None and not issubclass(type(error), BaseException | str):
            raise InvalidHandler(f"An error is text or an exception, not {type(error).__name__}.")
        if error is not None:
            found[known[event_id]] = error
    return found

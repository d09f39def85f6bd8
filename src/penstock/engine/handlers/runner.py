"""Call handlers in this process: one event after the other, or several at once."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from penstock.core import ambient, codec
from penstock.core.batch import Event, Events
from penstock.core.event import NewEvent
from penstock.core.lease import Failure
from penstock.core.limits import HELD_PER_LEASE
from penstock.core.retry import Retry
from penstock.core.signals import Permanent, Skipped, Unavailable, failure_of, is_a
from penstock.declare.subscription import Handler, Subscription
from penstock.engine.handlers.context import Context, Recorded, Scope
from penstock.engine.handlers.key_turns import Turns
from penstock.engine.handlers.state import KeyState, LeaseState, Missing, Written
from penstock.engine.isolation.marks import Mark, Marks
from penstock.errors import InvalidHandler


@dataclass(slots=True)
class Report:
    """The results of some events of a lease, by their place in it."""

    failed: dict[int, Failure] = field(default_factory=dict)
    dead: dict[int, Failure] = field(default_factory=dict)
    unavailable: Failure | None = None
    suspects: dict[int, Failure] = field(default_factory=dict)  # called together; one of them is to blame
    skipped: dict[int, str] = field(default_factory=dict)  # with the reason
    # Effects of the events that succeeded. State is merged by key, with its writers, until an event comes whose effects
    # the settle may refuse; from there on `effects` has all of them, event by event.
    effects: dict[int, Recorded] = field(default_factory=dict)
    state: dict[str, Written] = field(default_factory=dict)
    writers: dict[str, list[int]] = field(default_factory=dict)  # of `state`: their places, in order
    emit: list[tuple[int, NewEvent]] = field(default_factory=list)  # with the place of the emitting event, in order


@dataclass(slots=True)
class Part:
    """A part of a lease to run."""

    events: Events
    base: int  # the place of its first event in the lease
    marks: Marks
    state: LeaseState
    held: dict[str, int]  # ordered groups: the place of the first unresolved event of a key
    token: int
    report: Report = field(default_factory=Report)
    apart: set[str] = field(default_factory=set)  # keys whose reported state is a copy of the lease's
    scope: Scope = field(init=False)

    def current(self, slot: int) -> Event | None:
        """Return the event that is being handled in a slot."""
        place = self.marks.slots[slot]
        return Event(self.events, place - 1 - self.base) if place else None

    def keep(self, key: str, written: Written, place: int | None) -> None:
        """Keep the state that a successful event wrote; with its place, also report it, merged with that of its key."""
        reported = self.report.state
        if (mine := reported.get(key)) is not None and mine is self.state.of(key):
            reported[key] = mine.copy()  # the report shared the lease's dict so far
        self.apart.add(key)
        self.state.keep(key, written)
        if place is not None:
            reported.setdefault(key, {}).update(written)
            self.report.writers.setdefault(key, []).append(place)


class Runner:
    """The runner of a group: calls its handlers."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._policy = subscription.policy
        self._ordered, self._keyed = subscription.ordered, subscription.keyed
        self._by_type: dict[str, Handler | None] = {}
        self.itemized = False  # effects event by event: from the first that may be refused to the lease's end
        self._waiting = 0  # events of the lease held back by an earlier one of their key
        self._loop: asyncio.Runner | None = None
        why = None if self._keyed else "The group has no state: it has keyed=False, or no handler with a context."
        self._no_state = KeyState(Missing(why))

    def begin(self) -> None:
        """Start a new lease."""
        self.itemized, self._waiting = False, 0

    def run(self, part: Part) -> Report:
        """Run the untouched events, until the end or the stop flag."""
        part.scope = Scope(self._subscription.group, part.token, part.marks.cancels[part.base :])
        self._call_all(part)
        part.report.emit.sort(key=lambda one: one[0])  # in offset order
        return part.report

    def _call_all(self, part: Part) -> None:
        handlers = self._subscription.handlers
        if any(handler.is_async for handler in handlers):
            self.in_loop(self._several_async(part))
        elif self._policy.concurrency > 1:
            self._several(part)
        else:
            with ambient.handling(lambda: part.current(0)):
                if len(handlers) == 1 and handlers[0].types is None:
                    self._only(part, handlers[0].function, handlers[0].wants_context)
                else:
                    self._one_by_one(part)

    def in_loop(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine to its end, in the event loop of the handlers."""
        if self._loop is None:
            self._loop = asyncio.Runner()
        self._loop.run(work)

    def close(self) -> None:
        """Close the event loop, if there is one."""
        if self._loop is not None:
            self._loop.close()

    # --- one after the other -------------------------------------------------------------------------------------

    def _only(self, part: Part, handle: Callable[..., Any], wants_context: bool) -> None:  # noqa: PLR0912, PLR0915 - one loop
        """The fast path for one handler without `types`; inlined, because every call saved is saved per event."""
        scope = part.scope
        stop, slots, marks, base, events = part.marks.stop, part.marks.slots, part.marks.events, part.base, part.events
        ordered = self._ordered
        done = Mark.DONE.value
        keys = events.ordering_keys if wants_context and self._keyed else None
        state, reported, writers, apart = part.state.frozen(), part.report.state, part.report.writers, part.apart
        no_state = self._no_state
        for index in range(len(events)):
            place = base + index
            if marks[place]:
                self._pass(part, index)
                continue
            if stop[0]:
                break
            if ordered and self._held(part, index):
                continue
            slots[0] = place + 1
            event = Event(events, index)
            try:
                if wants_context:
                    if keys is None or (key := keys[index]) is None:
                        used = no_state
                    else:
                        used = KeyState({} if (names := state.get(key)) is None else names)
                    context = Context(event, used, scope)
                    answer = handle(event, context)
                    if answer is not None:
                        _refuse_coroutine(answer)
                    if context.recorded is not None or self.itemized or context.state is not used:
                        self._keep(part, index, context)
                    elif (written := used.written) and key is not None:
                        if used.special or names is None:
                            part.keep(key, written, place)
                        else:
                            names.update(written)
                            if (places := writers.get(key)) is not None:
                                places.append(place)
                                if apart and key in apart:
                                    reported[key].update(written)
                            else:
                                writers[key] = [place]
                                if len(names) == len(written):  # rewritten whole: share the dict instead of copying
                                    reported[key] = names
                                else:
                                    reported[key] = written.copy()
                                    apart.add(key)
                elif (answer := handle(event)) is not None:
                    _refuse_coroutine(answer)
            except BaseException as error:  # SystemExit, too, is an outcome of the event
                self._failed(part, index, error)
            else:
                marks[place] = done
        slots[0] = 0

    def _one_by_one(self, part: Part) -> None:
        marks = part.marks
        for index in range(len(part.events)):
            if marks.events[part.base + index]:
                self._pass(part, index)
                continue
            if marks.stop[0]:
                break
            if not self._held(part, index):
                marks.slots[0] = part.base + index + 1
                self._call(part, index)
        marks.slots[0] = 0

    def _call(self, part: Part, index: int) -> None:
        event = Event(part.events, index)
        try:
            handler, context = self._prepare(part, event)
            answer = handler.function(event) if context is None else handler.function(event, context)
            if answer is not None:
                _refuse_coroutine(answer)
            self._done(part, index, context)
        except BaseException as error:
            self._failed(part, index, error)

    def _prepare(self, part: Part, event: Event) -> tuple[Handler, Context | None]:
        handler = self._handler(event.event_type)
        return handler, self._context(part, event) if handler.wants_context else None

    def _handler(self, kind: str) -> Handler:
        if kind not in self._by_type:
            self._by_type[kind] = self._subscription.handler_for(kind)
        handler = self._by_type[kind]
        if handler is None:
            raise Permanent(f"no handler of the group {self._subscription.group!r} wants events of type {kind!r}")
        return handler

    def _context(self, part: Part, event: Event) -> Context:
        key = event.ordering_key if self._keyed else None
        return Context(event, self._no_state if key is None else KeyState(part.state.of(key)), part.scope)

    # --- several at once -----------------------------------------------------------------------------------------

    def _turns(self, part: Part) -> Turns:
        untouched = [index for index in range(len(part.events)) if not part.marks.events[part.base + index]]
        by_key = self._ordered or self._keyed
        return Turns(untouched, part.events.ordering_keys if by_key else None)

    def _several(self, part: Part) -> None:
        turns = self._turns(part)
        changed = threading.Condition()
        running = 0

        def work(slot: int) -> None:
            with ambient.handling(lambda: part.current(slot)):
                loop(slot)

        def loop(slot: int) -> None:
            nonlocal running
            while True:
                with changed:
                    while (index := None if part.marks.stop[0] else turns.take()) is None and running:
                        changed.wait()
                    if index is None:
                        changed.notify_all()
                        return
                    running += 1
                if not self._held(part, index):
                    part.marks.slots[slot] = part.base + index + 1
                    self._call(part, index)
                    part.marks.slots[slot] = 0
                with changed:
                    running -= 1
                    turns.done(index)
                    changed.notify_all()

        count = min(self._policy.concurrency, len(part.events))
        threads = [threading.Thread(target=work, args=(slot,), daemon=True) for slot in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    async def _several_async(self, part: Part) -> None:
        turns = self._turns(part)
        free = list(range(self._policy.concurrency))
        running: dict[asyncio.Task[None], tuple[int, int]] = {}
        while True:
            while free and not part.marks.stop[0] and (index := turns.take()) is not None:
                if self._held(part, index):
                    turns.done(index)
                    continue
                slot = free.pop()
                part.marks.slots[slot] = part.base + index + 1
                running[asyncio.create_task(self._call_async(part, index))] = (index, slot)
            if not running:
                return
            finished, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in finished:
                index, slot = running.pop(task)
                part.marks.slots[slot] = 0
                free.append(slot)
                turns.done(index)

    async def _call_async(self, part: Part, index: int) -> None:
        event = Event(part.events, index)
        limit = asyncio.timeout(self._policy.timeout_seconds)
        context = None
        try:
            async with limit:
                handler, context = self._prepare(part, event)
                with ambient.handling(lambda: event):
                    await (handler.function(event) if context is None else handler.function(event, context))
            self._done(part, index, context)
        except BaseException as error:
            late = is_a(error, TimeoutError) and limit.expired()
            self._failed(part, index, TimedOut(self._policy.timeout_seconds) if late else error)

    # --- outcomes ------------------------------------------------------------------------------------------------

    def _held(self, part: Part, index: int) -> bool:
        """Whether an event is not to be called: it was cancelled, or an earlier one of its key is unresolved."""
        if part.marks.cancels[part.base + index]:
            part.marks.events[part.base + index] = Mark.CANCELLED
            self._unresolved(part, index)
            return True
        if not part.held:
            return False
        key = part.events.ordering_keys[index]
        if key is None or part.base + index <= part.held.get(key, part.base + index):
            return False
        part.marks.events[part.base + index] = Mark.HELD
        self._waiting += 1
        if self._waiting >= HELD_PER_LEASE:
            part.marks.stop[0] = 1  # each costs a row; untouched events are released as one range
        return True

    def _done(self, part: Part, index: int, context: Context | None) -> None:
        if context is not None:
            self._keep(part, index, context)
        part.marks.events[part.base + index] = Mark.DONE

    def _keep(self, part: Part, index: int, context: Context) -> None:
        """Report the effects of an event that succeeded: see `Report`.

        Events of one key run one after the other, so the last value of a state wins.
        """
        recorded, written = context.recorded, context.written
        if recorded is None and not written:
            return
        key = part.events.ordering_keys[index]
        if recorded is not None and recorded.refusable:
            self.itemized = True
        if written:
            assert key is not None
            part.keep(key, written, None if self.itemized else part.base + index)
        if self.itemized:
            recorded = recorded or Recorded()
            if written:
                recorded.key, recorded.state = key, written
            part.report.effects[part.base + index] = recorded
        elif recorded is not None:
            part.report.emit += [(part.base + index, event) for event, _ in recorded.emit]

    def _pass(self, part: Part, index: int) -> None:
        """Pass an event that is not to be called; if it was cancelled, it is unresolved until the settle."""
        if part.marks.events[part.base + index] == Mark.CANCELLED:
            self._unresolved(part, index)

    def _unresolved(self, part: Part, index: int) -> None:
        """Hold back later events of this one's key, if the group is ordered."""
        if self._ordered and (key := part.events.ordering_keys[index]) is not None:
            place = part.base + index
            part.held[key] = min(place, part.held.get(key, place))

    def _failed(self, part: Part, index: int, error: BaseException | str) -> None:
        place = part.base + index
        if is_a(error, Skipped):
            part.report.skipped[place] = codec.error_text(error)
            part.marks.events[place] = Mark.DONE
            return
        self._unresolved(part, index)
        if is_a(error, Unavailable):
            part.report.unavailable = failure_of(error)
            part.marks.events[place] = Mark.BACK
            part.marks.stop[0] = 1  # the others would fail, too
            return
        which = part.report.dead if is_final(error, self._policy.retry) else part.report.failed
        which[place] = failure_of(error)
        part.marks.events[place] = Mark.FAILED


def _refuse_coroutine(answer: Any) -> None:
    """Raise if the handler returned something to await; other results are ignored."""
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise InvalidHandler("The handler returned a coroutine: declare it with `async def`.")


class TimedOut(Exception):
    """The handler did not answer in time."""

    code = "timed_out"

    def __init__(self, seconds: float) -> None:
        super().__init__(f"timed_out: no answer within {seconds:g} s")


def is_final(error: BaseException | str, retry: Retry) -> bool:
    """Return whether an event that failed is DEAD at once; a time limit is nothing that the handler raised."""
    return not is_a(error, TimedOut) and retry.gives_up(error)

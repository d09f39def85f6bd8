"""The second argument of handlers and batch handlers: effects that happen exactly once, with the settle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Unpack
from uuid import UUID

from penstock.core import codec
from penstock.core.batch import Event, Events
from penstock.core.event import EventFields, NewEvent
from penstock.core.user_sql import UserSqlError, check_user_sql
from penstock.engine.handlers.state import KeyState, Written
from penstock.errors import EffectRefused, InvalidInput
from penstock.log import new_events


@dataclass(slots=True)
class Recorded:
    """The effects of one event, to be applied if it succeeds."""

    key: str | None = None
    state: Written = field(default_factory=dict)
    emit: list[tuple[NewEvent, bool]] = field(default_factory=list)  # and whether the user chose its id
    execute: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)

    @property
    def refusable(self) -> bool:
        """Whether the database may still refuse part of it: user SQL, or an id chosen by the user."""
        return bool(self.execute) or any(chosen for _, chosen in self.emit)


_PLAIN = (type(None), bool, float, bytes, datetime, date, time, timedelta, Decimal, UUID)


def _parameter(value: Any) -> Any:
    """Copy a value that every driver accepts; `EffectRefused` for anything else."""
    kind = type(value)
    if kind in _PLAIN or (kind is int and -(2**63) <= value < 2**63):
        return value
    if kind is str:
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise EffectRefused(f"A parameter is not valid text: {error}.") from error
        return value
    if kind in (list, tuple):
        return [_parameter(one) for one in value]
    raise EffectRefused(f"A parameter of type {kind.__name__} cannot be stored: {value!r:.80}. Pass a plain value.")


@dataclass(frozen=True, slots=True)
class Scope:
    """What all contexts of a lease share."""

    group: str
    token: int
    cancels: Sequence[int] = ()  # by index: whether an event should end


class Context:
    """Effects that commit together with the event's outcome, or not at all."""

    __slots__ = ("_event", "_given", "_scope", "recorded", "state")

    def __init__(self, event: Event, state: KeyState, scope: Scope) -> None:
        self._event = event
        self._scope = scope
        self._given = state
        self.state = state  # of this event's ordering key in this group
        self.recorded: Recorded | None = None  # the effects, except state

    @property
    def token(self) -> int:
        """A number that grows with every claim: use it to fence writes to other systems."""
        return self._scope.token

    @property
    def idempotency_key(self) -> str:
        """The same text for all attempts and redrives of this delivery; a replay appends its number."""
        event = self._event
        replays = event.replays
        return f"{self._scope.group}:{event.event_id}" + (f":{replays}" if replays else "")

    @property
    def cancelled(self) -> bool:
        """Whether somebody wants this event to end: `log.cancel`. It is told with a heartbeat of its lease."""
        return bool(self._scope.cancels[self._event._index])

    @property
    def traceparent(self) -> str | None:
        """The W3C trace context of the event, if its producer or an earlier handler gave it one."""
        return self._event.trace.get("traceparent") if self._event.has_notes else None

    def emit(self, stream: str, payload: Any, **fields: Unpack[EventFields]) -> None:
        """Append an event to a stream of the same log, in the settle's transaction; fields as in `log.append`.

        It inherits the trace context of the event that is handled, unless its metadata has one.
        """
        if self._event.has_notes and (trace := self._event.trace):
            given = fields.get("metadata")
            if given is None or isinstance(given, Mapping):
                fields["metadata"] = {**trace, **(given or {})}
        # Check now, so that the handler fails and not the settle; copy, so that later changes do not matter.
        new, chosen = new_events.one(stream, {"payload": payload, **fields})
        self._record().emit.append((new, chosen))

    def execute(self, sql: str, params: Sequence[Any] = ()) -> None:
        """Run a statement in the settle's transaction; parameters are `?` on every store."""
        if not isinstance(sql, str) or not isinstance(params, list | tuple):
            raise InvalidInput("execute takes a statement and a list of parameters.")
        try:
            check_user_sql(sql)
        except UserSqlError as error:
            raise EffectRefused(str(error)) from error
        self._record().execute.append((codec.plain(sql), tuple(_parameter(one) for one in params)))

    def _record(self) -> Recorded:
        if self.recorded is None:
            self.recorded = Recorded()
        return self.recorded

    @property
    def written(self) -> Written:
        """The state that this event wrote."""
        if self.state is not self._given:
            raise InvalidInput("ctx.state was replaced and would be lost: set values, as in ctx.state['total'] = 3.")
        return self._given.written


class BatchContext:
    """The second argument of a batch handler: a `Context` for each of its events."""

    __slots__ = ("_events", "_indexes", "_make", "made", "token")

    def __init__(self, events: Events, indexes: Sequence[int], token: int, make: Callable[[Event], Context]) -> None:
        self._events = events
        self._indexes = frozenset(indexes)
        self._make = make
        self.token = token  # grows with every claim: use it to fence writes to other systems
        self.made: dict[int, Context] = {}  # by index, on demand

    def of(self, event: Event) -> Context:
        """Return the context of one event of this call; its effects commit if, and only if, this event succeeds."""
        if not isinstance(event, Event) or event._of is not self._events or event._index not in self._indexes:
            raise InvalidInput("ctx.of(event) takes an event of this call.")
        index = event._index
        if index not in self.made:
            self.made[index] = self._make(event)
        return self.made[index]

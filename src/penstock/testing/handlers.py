"""Run one handler on one event without a database; return its outcome and effects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from penstock.core import limits
from penstock.core.batch import Claimed, Event, Events
from penstock.core.columns import RowColumns
from penstock.core.event import NewEvent, check_key, check_time
from penstock.core.lease import Failure
from penstock.core.retry import Retry
from penstock.declare.subscription import Function, Policy, Subscription, handler_of
from penstock.engine.handlers.state import LeaseState, thaw
from penstock.engine.work import Work
from penstock.errors import InvalidInput, StateNeedsKey
from penstock.log import new_events
from penstock.log.deliveries import DeliveryRecord
from penstock.stores.base import Clock
from penstock.testing.emitted import Emitted, of_new
from penstock.testing.inline import InlineHandlers

_CLAIMED_BY = "test"


@dataclass(frozen=True, slots=True)
class Handled:
    """What a handler did with one event. If it did not succeed, there are no effects."""

    outcome: Literal["done", "failed", "dead", "unavailable"]
    error: Failure | None = None
    emitted: list[Emitted] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)  # of the event's key, afterwards
    executed: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)
    exception: BaseException | None = field(default=None, compare=False, repr=False)


def run_handler(
    handler: Function,
    payload: Any,
    *,
    type: str | None = None,
    ordering_key: str | None = None,
    headers: Mapping[str, str] | None = None,
    event_id: Any = None,
    available_at: datetime | None = None,
    partition_key: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    content_type: str | None = None,
    stream: str | None = None,
    created_at: datetime | None = None,
    attempts: int | None = None,
    failures: int | None = None,
    last_error: str | None = None,
    replays: int | None = None,
    state: Mapping[str, Any] | None = None,
    group: str = "test",
    token: int = 1,
    timeout_seconds: float = limits.TIMEOUT_SECONDS,
    batch: bool = False,
    retry: Retry | None = None,
    clock: Clock | None = None,
) -> Handled:
    """Call a handler on one event as the engine does, without a database: effects are only recorded.

    `payload` may also be an `Event`, or a delivery as returned by `log.delivery`, which is then retried with its own
    fields. `state` is the state of the event's key before the call. Set `batch` for a handler that is declared with
    `batch=`: it is called with a list of this one event. `retry` says by class which exceptions make it dead.

    >>> def screen(event, ctx):
    ...     ctx.emit("alerts", {"order": event.json()["id"]}, type="alert.raised")
    >>> run_handler(screen, {"id": 7}).emitted[0].payload
    {'order': 7}
    """
    given = {
        "type": type,
        "ordering_key": ordering_key,
        "headers": headers,
        "event_id": event_id,
        "available_at": available_at,
        "partition_key": partition_key,
        "metadata": metadata,
        "content_type": content_type,
        "stream": stream,
        "created_at": created_at,
        "attempts": attempts,
        "failures": failures,
        "last_error": last_error,
        "replays": replays,
    }
    given = {name: value for name, value in given.items() if value is not None}
    now = datetime.now(UTC) if clock is None else clock.now()
    events = _stored(payload, given, now) if isinstance(payload, Event | DeliveryRecord) else _new(payload, given, now)
    policy = Policy(retry=retry or Retry(), timeout_seconds=timeout_seconds, batch_size=1, batch=1 if batch else None)
    subscription = Subscription(events.stream, group, policy, [handler_of(handler, None)])
    key = events.ordering_keys[0]
    inline = InlineHandlers(subscription)
    try:
        work = Work(events, token, inline.marks, state=_known(state, key))
        raised = inline.run(work)
    finally:
        inline.close()
    return _handled(work, key, raised)


def _new(payload: Any, given: Mapping[str, Any], now: datetime) -> Events:
    """Make an event from the caller's fields, with the checks of an append."""
    fields = {name: given[name] for name in given.keys() & new_events.FIELDS}
    new, _ = new_events.one(given.get("stream", "test"), {"type": "test", **fields, "payload": payload})
    created_at = check_time(given.get("created_at", now), "created_at")
    attempts = _whole("attempts", given.get("attempts", 1), least=1)
    failures, replays = _whole("failures", given.get("failures", 0)), _whole("replays", given.get("replays", 0))
    return _claimed(new, (1, created_at), (attempts, failures, given.get("last_error"), replays, 0), now)


def _stored(event: Event | DeliveryRecord, given: Mapping[str, Any], now: datetime) -> Events:
    """Make the next attempt of a stored event (of an event of a lease: its current attempt)."""
    if given:
        raise InvalidInput(f"An event has its own {', '.join(sorted(given))}; pass its payload to change anything.")
    fields = {
        "payload": bytes(event.payload),
        "type": event.event_type,
        "event_id": event.event_id,
        "content_type": event.content_type,
        "headers": event.headers,
        "metadata": event.metadata,
        "partition_key": event.partition_key,
        "ordering_key": event.ordering_key,
        "available_at": event.available_at,
    }
    new, _ = new_events.one(event.stream, fields)
    leased = isinstance(event, Event) and event.state is not None
    attempts = event.attempts if leased else event.attempts + 1
    replays = event.replays if isinstance(event, Event) else max((one.replays for one in event.history), default=0)
    retries = attempts, event.failures, event.last_error, replays, event.total_attempts - event.attempts
    return _claimed(new, (event.offset, event.created_at), retries, now)


def _claimed(
    new: NewEvent,
    stored: tuple[int, datetime | None],
    retries: tuple[int, int, str | None, int, int],
    now: datetime,
) -> Events:
    """Make the event as a claim returns it: `stored` is its offset and time, `retries` as in `Events.retries`."""
    offset, created_at = stored
    row = (
        offset,
        new.event_id.bytes,
        new.event_type,
        new.payload,
        new.content_type,
        new.headers,
        new.metadata,
        new.partition_key,
        new.ordering_key,
        new.available_at,
        created_at,
        *retries,
    )
    return Events(RowColumns([row]), new.stream, Claimed(now, _CLAIMED_BY, retries[0], retries[3]))


def _known(state: Mapping[str, Any] | None, key: str | None) -> LeaseState:
    if not state:
        return LeaseState()
    if key is None:
        raise StateNeedsKey("state needs an ordering key, and the event has none.")
    if not isinstance(state, Mapping):
        raise InvalidInput("state must map names to values of the event's own key.")
    for name in state:
        check_key(name, "state name")
    return LeaseState({key: state})


def _handled(work: Work, key: str | None, raised: list[BaseException]) -> Handled:
    recorded = list(work.effects.values())
    outcome: Literal["done", "failed", "dead", "unavailable"] = "done"
    error: Failure | None = None
    if work.unavailable is not None:
        outcome, error = "unavailable", work.unavailable
    elif work.dead:
        outcome, error = "dead", work.dead[0]
    elif work.failed:
        outcome, error = "failed", work.failed[0]
    known = {} if key is None else work.state.of(key)
    return Handled(
        outcome,
        error,
        [of_new(new) for new in [*(new for _, new in work.emit), *(new for one in recorded for new, _ in one.emit)]],
        {name: thaw(value) for name, value in known.items()},
        [statement for one in recorded for statement in one.execute],
        raised[-1] if raised else None,
    )


def _whole(what: str, value: Any, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidInput(f"{what} must be a whole number of at least {least}, not {value!r}.")
    return value

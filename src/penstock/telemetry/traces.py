"""OpenTelemetry: a span for each lease, each failed event and each operator's action, through the observe seam.

Per lease, not per event: a handler's own spans become children of its event's trace, and the trace of an event is
looked up only when a handler starts one. `start` is called in every process that handles events, if the environment
asks for it (see `engine.tracing`).
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final

from penstock.core import ambient, codec
from penstock.core import trace as propagation
from penstock.core.ambient import Current
from penstock.core.batch import Events
from penstock.core.lease import Failure
from penstock.core.limits import FAILURE_SPANS, SPAN_LINKS, SPAN_LOOK
from penstock.core.log_fields import about
from penstock.core.observe import EventsFailed, LeaseEnded, Observed, Operated, Timing, everyone
from penstock.engine.tracing import VARIABLE, wanted
from penstock.errors import InvalidInput, MissingDependency

try:
    from opentelemetry import context as contexts
    from opentelemetry import trace
    from opentelemetry.context.context import Context
    from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as missing:
    raise MissingDependency(f"pip install 'penstock[otel]': {missing}.") from missing

MESSAGES: Final = "PENSTOCK_TRACE_MESSAGES"  # whether spans of failed events have the error's words
LEASE, FAILURE, ACTION = "penstock.lease", "penstock.failure", "penstock.action"
SPANS: Final = {
    LEASE: (
        *("messaging.system", "messaging.operation.type", "messaging.destination.name"),
        *("messaging.consumer.group.name", "messaging.batch.message_count", "penstock.lease"),
        *("penstock.published", "penstock.failed", "penstock.dead", "penstock.released"),
        *("penstock.claim_seconds", "penstock.handle_seconds", "penstock.settle_seconds"),
    ),
    FAILURE: (
        *("messaging.system", "messaging.destination.name", "messaging.consumer.group.name", "messaging.message.id"),
        *("penstock.lease", "penstock.offset", "penstock.attempt", "penstock.code", "penstock.fingerprint"),
        *("error.type", "exception.message"),
    ),
    ACTION: ("messaging.destination.name", "messaging.consumer.group.name", "penstock.action", "penstock.moved"),
}
_REMEMBERED: Final = 100  # spans of leases, for the failures in them
_NANO: Final = 1_000_000_000
_propagator = TraceContextTextMapPropagator()
_SPAN_KEY: Final[str] = next(iter(trace.set_span_in_context(trace.INVALID_SPAN, Context())))
_started: list[Callable[[], None]] = []  # what ends it
_lock = threading.Lock()


def start() -> None:
    """Trace what this process does from now on. Started again, it does nothing.

    The tracer provider of the program is used, if it has set one; otherwise one is made that exports as the standard
    variables `OTEL_*` say.
    """
    with _lock:
        if _started:
            return
        _ensure_provider()
        ambient.install(surround)
        propagation.install(current_as_metadata)
        _started.append(everyone.subscribe(Spans()))


def stop() -> None:
    """Trace nothing from now on."""
    with _lock:
        while _started:
            _started.pop()()
        ambient.install(None)
        propagation.install(None)
    flush()


def flush(seconds: float = 5.0) -> None:
    """Export what was not exported yet."""
    flushed = getattr(trace.get_tracer_provider(), "force_flush", None)
    if flushed is not None:
        flushed(int(seconds * 1000))


@contextmanager
def tracing(on: bool | None = None) -> Iterator[None]:
    """Trace for the duration of the block, in this process and in those that it starts; None: as the environment says.

    The program's own tracing goes on: `start` may have been called before.
    """
    if not (wanted() if on is None else on):
        yield
        return
    before, already = os.environ.get(VARIABLE), bool(_started)
    os.environ[VARIABLE] = "1"
    try:
        start()
        yield
    finally:
        if not already:
            stop()
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before


def _ensure_provider() -> None:
    """Set a provider if the program has none, with an exporter by OTEL_TRACES_EXPORTER: otlp, console or none."""
    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
    except ImportError as error:
        raise MissingDependency(f"pip install 'penstock[otel]': {error}.") from error
    kinds: dict[str, Callable[[], Any]] = {"otlp": OTLPSpanExporter, "console": ConsoleSpanExporter}
    kind = os.environ.get("OTEL_TRACES_EXPORTER", "").strip().lower() or "otlp"
    if kind not in (*kinds, "none"):
        raise InvalidInput(f"OTEL_TRACES_EXPORTER is otlp, console or none, not {kind[:60]!r}.")
    named = "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "") or "OTEL_SERVICE_NAME" in os.environ
    resource = Resource.create({} if named else {"service.name": "penstock"})
    provider = TracerProvider(resource=resource)
    if kind in kinds:
        provider.add_span_processor(BatchSpanProcessor(kinds[kind]()))
    trace.set_tracer_provider(provider)


# --- from and to events ----------------------------------------------------------------------------------------------


def current_as_metadata() -> Mapping[str, str]:
    """Return the current span of whoever appends, as metadata of the event."""
    found: dict[str, str] = {}
    if trace.get_current_span().get_span_context().is_valid:
        _propagator.inject(found)
    return found


def context_of(carried: Mapping[str, str]) -> SpanContext | None:
    """Return the span that an event's trace context names, if it names one."""
    if "traceparent" not in carried:
        return None
    found = trace.get_current_span(_propagator.extract(carried, Context())).get_span_context()
    return found if found.is_valid else None


class _OfEvent(Context):
    """A context whose span is that of the event which is being handled at the moment somebody asks."""

    def __init__(self, below: Context, current: Current) -> None:
        super().__init__(below)
        self._current = current

    def get(self, key: str, default: Any = None) -> Any:
        if key != _SPAN_KEY:
            return super().get(key, default)
        event = self._current()
        found = None if event is None or not event.has_notes else context_of(event.trace)
        return super().get(key, default) if found is None else NonRecordingSpan(found)

    def __getitem__(self, key: str) -> Any:
        found = self.get(key)
        return super().__getitem__(key) if found is None else found

    def copy(self) -> dict[str, object]:
        span = self.get(_SPAN_KEY)
        return {**self} if span is None else {**self, _SPAN_KEY: span}


@contextmanager
def surround(current: Current) -> Iterator[None]:
    """Let spans that handlers start become children of their event's trace."""
    token = contexts.attach(_OfEvent(contexts.get_current(), current))
    try:
        yield
    finally:
        contexts.detach(token)


# --- spans -----------------------------------------------------------------------------------------------------------


class Spans:
    """An observer that makes a span of each lease, failed event and action."""

    def __init__(self) -> None:
        self._tracer = trace.get_tracer("penstock")
        self._messages = os.environ.get(MESSAGES, "").lower() in ("1", "true", "yes")
        self._leases: OrderedDict[int, SpanContext] = OrderedDict()

    def __call__(self, event: Observed) -> None:
        match event:
            case LeaseEnded(timing=Timing() as timing):
                self._lease(event, timing)
            case EventsFailed():
                self._failures(event)
            case Operated():
                self._action(event)
            case _:
                pass

    def _lease(self, event: LeaseEnded, timing: Timing) -> None:
        counts, place = event.counts, about("", event.group)["penstock"]
        span = self._tracer.start_span(
            LEASE,
            Context(),
            SpanKind.CONSUMER,
            {
                "messaging.system": "penstock",
                "messaging.operation.type": "process",
                **_named(place),
                "messaging.batch.message_count": counts.published + counts.failed + counts.dead + counts.released,
                "penstock.lease": event.lease,
                "penstock.published": counts.published,
                "penstock.failed": counts.failed,
                "penstock.dead": counts.dead,
                "penstock.released": counts.released,
                "penstock.claim_seconds": timing.claim_seconds,
                "penstock.handle_seconds": timing.handle_seconds or 0.0,
                "penstock.settle_seconds": timing.settle_seconds or 0.0,
            },
            links=[] if event.events is None else links_of(event.events),
            start_time=int(timing.began_at * _NANO),
        )
        if counts.dead:
            span.set_status(Status(StatusCode.ERROR))
        span.end(time.time_ns())
        self._leases[event.lease] = span.get_span_context()
        if len(self._leases) > _REMEMBERED:
            self._leases.popitem(last=False)

    def _failures(self, failed: EventsFailed) -> None:
        lease = None if failed.lease is None else self._leases.get(failed.lease)
        for place, failure in sorted(failed.failures.items())[:FAILURE_SPANS]:
            event = failed.events[place]
            parent = context_of(event.trace) or lease
            links = [] if lease is None or parent is lease else [Link(lease)]
            within = Context() if parent is None else trace.set_span_in_context(NonRecordingSpan(parent), Context())
            span = self._tracer.start_span(FAILURE, within, SpanKind.CONSUMER, links=links)
            span.set_attributes({"messaging.system": "penstock", **_named(about("", failed.group)["penstock"])})
            span.set_attributes({"messaging.message.id": str(event.event_id), "penstock.offset": event.offset})
            span.set_attributes({"penstock.attempt": event.attempts, "penstock.lease": failed.lease or 0})
            self._error(span, failure)
            span.end()

    def _error(self, span: Span, failure: Failure) -> None:
        """Record an error by its code and fingerprint; its words may hold what is nobody's business."""
        span.set_attributes({"penstock.code": failure.code, "error.type": failure.error_type or failure.code})
        if failure.fingerprint is not None:
            span.set_attribute("penstock.fingerprint", failure.fingerprint)
        if self._messages:
            span.set_attribute("exception.message", failure.message)
        span.set_status(Status(StatusCode.ERROR, failure.code))

    def _action(self, event: Operated) -> None:
        span = self._tracer.start_span(ACTION)  # of the caller's trace, if there is one
        span.set_attributes(_named({"stream": event.stream, "group": event.group}))
        span.set_attributes({"penstock.action": event.action, "penstock.moved": event.count or 0})
        span.end()


def _named(place: Mapping[str, Any]) -> dict[str, str]:
    names = {"messaging.destination.name": place.get("stream"), "messaging.consumer.group.name": place.get("group")}
    return {name: value for name, value in names.items() if value}


def links_of(events: Events) -> list[Link]:
    """Return links to the traces of some events of a lease.

    Of `SPAN_LOOK` events, evenly spread, the first `SPAN_LINKS` that have a trace are read, be it the same or not: to
    read one takes as long as to handle a few events.
    """
    step = -(-len(events) // SPAN_LOOK) or 1
    notes = zip(events.every("metadata", step), events.every("headers", step), strict=True)
    traced = islice((each for each in notes if any(map(_names_trace, each))), SPAN_LINKS)
    carried = (
        propagation.inherited(codec.decode_object(metadata), codec.decode_headers(headers))
        for metadata, headers in traced
    )
    spans = map(context_of, carried)
    return [*{(one.trace_id, one.span_id): Link(one) for one in spans if one is not None}.values()]


def _names_trace(text: str | None) -> bool:
    return text is not None and "traceparent" in text.lower()

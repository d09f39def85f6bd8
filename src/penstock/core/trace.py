"""Trace context from event to event: W3C `traceparent` and `tracestate`, and a correlation id.

A producer puts it into the metadata, or sends it as headers. A relay sends it on, and an event that a handler emits
inherits it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

NAMES: Final = {"traceparent": "traceparent", "tracestate": "tracestate", "correlation_id": "correlation-id"}

_sources: list[Callable[[], Mapping[str, str]]] = []


def install(source: Callable[[], Mapping[str, str]] | None) -> None:
    """Let `source` tell the trace context of whoever appends, as metadata; None ends it. It is for traces."""
    _sources[:] = [] if source is None else [source]


def traced(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of a new event, with the trace context of whoever appends if traces are on."""
    given = _sources[0]() if _sources else None
    return _with(fields, given) if given else fields


def traced_all(items: list[Any]) -> list[Any]:
    """The same for many events."""
    given = _sources[0]() if _sources else None
    return [_with(one, given) if isinstance(one, Mapping) else one for one in items] if given else items


def _with(fields: Mapping[str, Any], given: Mapping[str, str]) -> Mapping[str, Any]:
    """Put a trace context into the metadata of an event that names none."""
    metadata, headers = fields.get("metadata"), fields.get("headers")
    if not isinstance(metadata, Mapping | None) or not isinstance(headers, Mapping | None):
        return fields  # refused by whoever checks it
    if "traceparent" in (metadata or ()) or any(str(name).lower() == "traceparent" for name in headers or ()):
        return fields
    return {**fields, "metadata": {**given, **(metadata or {})}}


def as_headers(metadata: Mapping[str, Any], known: Iterable[str]) -> list[tuple[str, str]]:
    """Return the trace context of an event's metadata as headers, but for those that it has.

    >>> as_headers({"traceparent": "00-1-2-01", "note": "x"}, ["Tenant"])
    [('traceparent', '00-1-2-01')]
    """
    taken = {name.lower() for name in known}
    if "traceparent" in taken:  # a state belongs to its parent
        taken.add("tracestate")
    found = ((header, metadata.get(field)) for field, header in NAMES.items() if header not in taken)
    return [(header, value) for header, value in found if isinstance(value, str) and value]


def inherited(metadata: Mapping[str, Any], headers: Mapping[str, str]) -> dict[str, str]:
    """Return the trace context of an event, as the metadata of those that follow from it; headers count first."""
    sent = {name.lower(): value for name, value in headers.items()}
    found = {field: sent.get(header) or metadata.get(field) for field, header in NAMES.items()}
    return {field: value for field, value in found.items() if isinstance(value, str)}

"""Trace context from event to event: W3C `traceparent` and `tracestate`, and a correlation id.

A producer puts it into the metadata, or sends it as headers. A relay sends it on, and an event that a handler emits
inherits it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

NAMES: Final = {"traceparent": "traceparent", "tracestate": "tracestate", "correlation_id": "correlation-id"}


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

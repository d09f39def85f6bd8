"""A stream: what is appended, its types, its groups and its events."""

from __future__ import annotations

import json
from typing import Final

from penstock.core.access import APPEND, READ
from penstock.errors import InvalidInput
from penstock.log.newest_events import NEWEST, page_of
from penstock.web.actions import Action, Ask, Done, Field, Plan
from penstock.web.numbers import Chart, appended
from penstock.web.page import Model, Page, Panel, by_id
from penstock.web.pages.overview import Line
from penstock.web.view import View

_EVENTS: Final = 40  # on a page
_POINTS: Final = 30


def build(view: View) -> Model:
    """Read numbers, types, groups and a page of events."""
    stream = view.name("stream")
    view.require(READ, stream)
    log, kind = view.log, view.text("type") or None
    found = log.survey_of(stream)
    at = view.moment("at")
    before = log.position(stream, at) + 1 if at is not None else view.whole("before") or None
    events = log.newest_events(stream, before=before, type=kind, limit=_EVENTS)
    types = log.event_types(stream)
    chart, numbers_sql, numbers_curl = _appended(view, stream)
    sparks = log.sparklines(since=view.since(found.now), points=_POINTS) if found.stats.groups else {}
    lines = [
        Line(one, found.retrying.get((one.stream, one.group), 0), sparks.get((one.stream, one.group), ()))
        for one in found.stats.groups
    ]
    where = page_of(stream, before or NEWEST, events.horizon, kind, _EVENTS, events.low)
    lowest = events.events[-1].offset - 1 if events.events else 0
    curl = view.curl(f"/v1/streams/{stream}/events", cursor=lowest, limit=_EVENTS)
    return {
        "title": stream,
        "stream": stream,
        "types": types,
        "most": max(types.values(), default=1),
        "total": sum(types.values()),
        "lines": lines,
        "events": events,
        "first": before is None,
        "kind": kind or "",
        "chart": chart,
        "asked_at": found.now,
        "sees": view.sees_payloads(stream),
        "panels": by_id(
            Panel("appended", "Appended", numbers_sql, numbers_curl),
            Panel("types", "Types", view.sql("panel.types", stream=stream), view.curl(f"/v1/streams/{stream}/types")),
            Panel("groups", "Groups", view.sql("panel.groups", stream=stream), view.curl("/v1/stats")),
            Panel("events", "Events", view.sql("newest.events", **where), curl),
        ),
    }


def _appended(view: View, stream: str) -> tuple[Chart, str, str]:
    found = view.log.series(stream, since=view.since(view.log.clock()))
    params = {"stream": stream, "since": found.since, "until": found.until, "step": found.step_seconds}
    times = {"since": found.since.isoformat(), "until": found.until.isoformat(), "step_seconds": found.step_seconds}
    return appended(found), view.sql("panel.appended", **params), view.curl(f"/v1/streams/{stream}/series", **times)


def _plan(ask: Ask) -> Plan:
    _payload(ask)
    return Plan(f"One event of the type {ask.text('type')!r} is appended; every group that wants it gets it.")


def _append(ask: Ask) -> Done:
    key = ask.text("key") or None
    metadata = {"penstock-page": {"by": ask.by, "reason": ask.reason}} if ask.reason else None
    ask.view.log.append(ask.stream, _payload(ask), type=ask.text("type"), ordering_key=key, metadata=metadata)
    return Done()


def _payload(ask: Ask) -> object:
    try:
        return json.loads(ask.text("payload"))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"The payload is not JSON: {error}.") from error


PAGES = (Page("/s/{stream}", "stream.html", build, topics=("events", "leases", "audit"), nav="overview"),)
ACTIONS = (
    Action(
        "append",
        "Append a test event",
        "Append",
        "The event is appended.",
        _plan,
        _append,
        scope=APPEND,
        of="stream",
        reason="none",
        fields=(
            Field("type", "Type", required=True, hint="such as order.created"),
            Field("key", "Ordering key", hint="optional: events of a key are handled in order"),
            Field("payload", "Payload, JSON", "area", required=True, value="{}"),
        ),
    ),
)

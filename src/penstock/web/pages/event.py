"""One event: what it is, its life in every group, its attempts, leases and what people did to it."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import orjson

from penstock.core.access import PAYLOAD, READ
from penstock.core.batch import Event
from penstock.core.event import ERASED, parse_event_id
from penstock.core.job import Job, name_of
from penstock.errors import UnknownEvent
from penstock.log.archives.record import Archive
from penstock.log.audit_pages import page_of
from penstock.log.deliveries import Attempt
from penstock.log.life import NOTED, Life, id_time
from penstock.log.mend import MENDED_FROM
from penstock.web import timeline
from penstock.web.page import Download, File, Model, Page, Panel, by_id
from penstock.web.view import View
from penstock.web.words import payload, short

_RUN_LINES = 200  # of attempts, the newest


def which_of(view: View) -> Any:
    """Return the event that the path names, by its id or its offset."""
    named = view.path["which"]
    if named.isascii() and named.isdecimal() and len(named) <= 18:
        return int(named)
    return parse_event_id(named)


def found(view: View, which: Any) -> tuple[str, int]:
    """Return the stream and offset of an event that may be looked at; for all others it does not exist."""
    stream, offset = view.log.stream_of(which)
    if not view.reads(stream):
        raise UnknownEvent(f"There is no event {which}.")
    return stream, offset


def build(view: View) -> Model:
    """Read the event and its life; if it is gone, say where it may be."""
    which = which_of(view)
    try:
        stream, offset = found(view, which)
    except UnknownEvent:
        gone = _gone(view, which)
        if gone is None:
            raise
        return gone
    life = view.log.life(stream, offset)
    event, now = life.event, datetime.now(UTC)
    lanes = timeline.lanes_of(life, now)
    name = name_of(stream)
    job = None if name is None else view.log.job(event.event_id)
    return {
        "title": f"{event.event_type} #{event.offset}",
        "gone": None,
        "event": event,
        "headers": event.headers,
        "metadata": {name: orjson.dumps(value).decode() for name, value in event.metadata.items()},
        "erased": event.metadata.get(ERASED),
        "mends": _mends(event),
        "body": _body(view, event),
        "lanes": lanes,
        "drawing": timeline.draw(lanes, event.created_at, now) if lanes else None,
        "deliveries": sorted(life.groups, key=lambda one: [lane.group for lane in lanes].index(one.group)),
        "attempts": _attempts(life),
        "life": life,
        "name": name,
        "job": job,
        "result": _result(view, job),
        "read_at": now,
        "panels": _panels(view, life, job),
    }


def _body(view: View, event: Event) -> str | None:
    """Return the payload as text; None for whoever may not see it."""
    return payload(event.payload, event.content_type) if view.sees_payloads(event.stream) else None


def _result(view: View, job: Job | None) -> str | None:
    if job is None or job.result is None or not view.sees_payloads(job.stream):
        return None
    return payload(orjson.dumps(job.result), "application/json")


def _mends(event: Event) -> uuid.UUID | None:
    said = event.metadata.get(MENDED_FROM)
    named = said.get("event_id") if isinstance(said, dict) else said
    try:
        return uuid.UUID(str(named)) if named else None
    except ValueError:
        return None


def _attempts(life: Life) -> list[tuple[str, Attempt]]:
    """Return what happened in all groups, the newest first."""
    lines = [(one.group, line) for one in life.groups for line in one.history]
    return sorted(lines, key=lambda one: one[1].at, reverse=True)[:_RUN_LINES]


def _panels(view: View, life: Life, job: Job | None) -> SimpleNamespace:
    event = life.event
    at = {"stream": event.stream, "offset": event.offset}
    one = f"/v1/streams/{event.stream}/events/{event.event_id}"
    living = view.curl(f"{one}/life")
    leases = sorted(life.leases)
    return by_id(
        Panel("life", "Life", sql=view.sql("life.history", **at), curl=living),
        Panel("deliveries", "Deliveries", sql=view.sql("life.deliveries", **at), curl=living),
        Panel("attempts", "Attempts", sql=view.sql("life.history", **at), curl=living, about="newest first"),
        Panel("leases", "Leases", sql=view.sql("life.leases", ids=leases), curl=living),
        _done_panel(view, life),
        Panel("event", "Event", sql=view.sql("life.event", **at), curl=view.curl(one), live=False),
        Panel("job", "Job", sql=view.sql("jobs.show", offsets=[event.offset]), curl=view.curl(f"/v1/jobs/{job.id}"))
        if job is not None
        else Panel("job", "Job"),
    )


def _done_panel(view: View, life: Life) -> Panel:
    """Return the panel of what people did, with the audit of the group where somebody did something last."""
    if not life.done:
        return Panel("done", "What people did")
    stream, group = life.event.stream, life.done[0].group
    sql = view.sql("audit.page", **page_of(stream, group, None, NOTED))
    return Panel("done", "What people did", sql, view.curl("/v1/audit", stream=stream, group=group))


def _gone(view: View, which: Any) -> Model | None:
    """Say of an event that is not in the log where it may be; None if it was never there, for all that is known."""
    cut = {stream: upto for stream, upto in view.log.pruned().items() if view.reads(stream)}
    if isinstance(which, int):
        cut = {stream: upto for stream, upto in cut.items() if upto >= which}
    archives = [one for one in _archives(view) if view.reads(one.stream) and _may_hold(one, which)]
    if not cut and not archives:
        return None
    born = None if isinstance(which, int) else id_time(which)
    gone = {"which": which, "cut": cut, "archives": archives, "born": born}
    panels = by_id(Panel("gone", "Not in the log any more", sql=view.sql("life.pruned"), live=False))
    return {"title": f"event {short(which, 40)}", "gone": gone, "panels": panels}


def _archives(view: View) -> list[Archive]:
    return [one for one in view.log.archives() if one.done]


def _may_hold(archive: Archive, which: Any) -> bool:
    return not isinstance(which, int) or archive.low < which <= archive.high


def raw(view: View) -> File:
    """Return the bytes of a payload, to be saved, never shown."""
    stream, offset = found(view, which_of(view))
    view.require(PAYLOAD, stream)
    event = view.log.event(stream, offset)
    return File(f"event-{event.event_id}", "application/octet-stream", [event.payload])


PAGES = (Page("/e/{which}", "event.html", build, READ, topics=("events", "leases", "audit")),)
DOWNLOADS = (Download("/e/{which}/raw", raw, PAYLOAD),)

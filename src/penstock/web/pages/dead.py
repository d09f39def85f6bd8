"""Dead letters of a group, by kind of error, and what runs to bring them back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain
from types import SimpleNamespace
from typing import Any, Final

from penstock.core.access import PAYLOAD, READ
from penstock.errors import UnknownGroup
from penstock.log.operations.record import OperationInfo
from penstock.web.page import Download, File, Model, Page, Panel, by_id
from penstock.web.view import View

FILTERS: Final = ("type", "since", "error")
_KINDS: Final = 50
_LETTERS: Final = 20  # dead letters that are listed
_RUNS: Final = 6


def filters(view: View) -> dict[str, Any]:
    """Return the filters of the address as the log takes them."""
    return {
        "type": view.text("type").strip() or None,
        "error": view.text("error").strip() or None,
        "since": view.moment("since"),
    }


def build(view: View) -> Model:
    """Read the kinds of errors, the dead letters of the page, and the operations of the group."""
    stream, group = view.name("stream"), view.name("group")
    view.require(READ, stream)
    known = next((one for one in view.log.groups(stream) if one.group_name == group), None)
    if known is None:
        raise UnknownGroup(f"There is no group {group!r} on the stream {stream!r}.")
    which = filters(view)
    kinds = sorted(view.log.fingerprints(stream, group, limit=_KINDS, **which), key=lambda one: one.muted)
    kind, after = view.text("kind") or None, view.whole("after")
    letters = view.log.deliveries(stream, group, state="DEAD", after=after, limit=_LETTERS, fingerprint=kind, **which)
    runs = view.log.operations(stream=stream, group=group, limit=_RUNS)
    return {
        "title": f"Dead letters of {stream}/{group}",
        "stream": stream,
        "group": group,
        "it": known,
        "kinds": kinds,
        "kind": kind,
        "total": sum(one.count for one in kinds),
        "capped": any(one.capped for one in kinds) or len(kinds) == _KINDS,
        "filters": {name: view.text(name) for name in FILTERS},
        "filtered": any(which.values()),
        "since": which["since"],
        "letters": letters,
        "more": letters[-1].offset if len(letters) == _LETTERS else None,
        "running": [one for one in runs if not one.ended],
        "ended": [one for one in runs if one.ended],
        "read_at": datetime.now(UTC),
        "panels": _panels(view, stream, group, known.group_id, runs),
    }


def _panels(view: View, stream: str, group: str, group_id: int, runs: list[OperationInfo]) -> SimpleNamespace:
    base = f"/v1/streams/{stream}/groups/{group}"
    asked = {name: view.text(name) or None for name in FILTERS}
    letters = {"group_id": group_id, "after": view.whole("after"), "limit": _LETTERS}
    operations = {"stream": stream, "group_name": group, "state": None, "before": None, "limit": _RUNS}
    return by_id(
        Panel("kinds", "By kind of error", _kinds_sql(view, group_id), view.curl(f"{base}/fingerprints", **asked)),
        Panel(
            *("letters", "Dead letters", view.sql("dead.panel", **letters)),
            view.curl(f"{base}/deliveries", state="DEAD", limit=_LETTERS, **asked),
            about="oldest first",
        ),
        Panel("runs", "Past operations", view.sql("operation.page", **operations), view.curl("/v1/operations")),
    )


def _kinds_sql(view: View, group_id: int) -> str:
    return view.sql("fingerprints.kinds", group_id=group_id, most=_KINDS)


def export(view: View) -> File:
    """Return the dead letters that match, with their payloads, one JSON document a line."""
    stream, group = view.name("stream"), view.name("group")
    view.require(READ, stream)
    view.require(PAYLOAD, stream)
    if not any(one.group_name == group for one in view.log.groups(stream)):
        raise UnknownGroup(f"There is no group {group!r} on the stream {stream!r}.")
    named = (one.replace("\x00", "") for one in view.request.query_params.getlist("fingerprints"))
    kinds: list[str | None] = [one for one in named if one] or [None]
    which = filters(view)

    def lines() -> Iterator[bytes]:
        for kind in kinds:
            for one in view.log.export(stream, group, fingerprint=kind, **which):
                yield json.dumps(one, default=_written, ensure_ascii=False).encode() + b"\n"

    found = lines()
    first = next(found, b"")  # what is wrong with the filters is said before the file begins
    return File(f"dead-{stream}-{group}.jsonl".replace(":", "-"), "application/x-ndjson", chain((first,), found))


def _written(value: Any) -> str:
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else str(value)


PAGES = (Page("/s/{stream}/g/{group}/dead", "dead.html", build, topics=("leases", "audit", "operations")),)
DOWNLOADS = (Download("/s/{stream}/g/{group}/dead/export", export, PAYLOAD),)

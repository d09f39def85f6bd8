"""Dead letters in bulk: kinds of errors and notes on them, purge, and payloads mended by hand."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter
from pydantic import ConfigDict, Field
from starlette.responses import Response

from penstock.core.access import APPEND
from penstock.core.event import check_name
from penstock.http.answers import Answer, moved
from penstock.http.bodies import Body, Flag, Moment, StrictRoute, payload_of
from penstock.http.given import CanOperate, CanRead, Group, Limit, Stream, TheLog, event_of, require
from penstock.http.operators import Redrive
from penstock.http.shapes import an_object, many
from penstock.http.spec import spec

router = APIRouter(prefix="/v1/streams/{stream}/groups/{group}", tags=["dead letters"], route_class=StrictRoute)
_ID, _NEW = "0198f2b4-1111-7abc-8def-0123456789ab", "0198f2b4-2222-5abc-8def-0123456789ab"
_KIND = {
    "fingerprint": "1-2199966c5209c38475a8",
    "error_code": "handler",
    "error_type": "KeyError",
    "message": "KeyError: 'risk'",
    "place": "screen.py:risk",
    "count": 1204,
    "capped": False,
    "first_at": "2026-07-01T11:58:02+00:00",
    "last_at": "2026-07-01T12:01:00+00:00",
    "trend": [0] * 23 + [1204],
    "note": "fix in 4.2",
    "owner": "ann",
    "muted": False,
    "sample_event_ids": [_ID],
}


class Purge(Redrive):
    """Which dead letters: a filter, or `all`."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"error": "KeyError", "dry_run": True}]})


class Mend(Body):
    """Which dead letter, and its mended payload."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"event_id": _ID, "payload": {"amount": 12.5}, "reason": "wrong currency"}]}
    )

    event_id: str
    payload: Any = Field(description='JSON, or `{"base64": …}` for bytes.')
    into: str | None = Field(None, description="Another stream, whose groups all receive it.")
    reason: str | None = None


class Note(Body):
    """What is known about a kind of error; what is not sent stays, an empty text removes it."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"note": "fix in 4.2", "owner": "ann", "muted": True}]})

    note: str | None = None
    owner: str | None = None
    muted: Flag | None = None


@router.get(
    "/fingerprints",
    **spec(
        "read",
        {"fingerprints": [_KIND]},
        "unknown_group",
        "naive_datetime",
        shape=an_object(fingerprints=many("Fingerprint")),
        reads=True,
    ),
)
def fingerprints(
    log: TheLog,
    access: CanRead,
    stream: Stream,
    group: Group,
    type: str | None = None,
    error: str | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
    limit: Limit = 50,
) -> Answer:
    """List the kinds of errors of dead letters that were seen last, the largest first. Counts end at 10,000."""
    which: dict[str, Any] = {"type": type, "error": error, "since": since, "until": until}
    return Answer({"fingerprints": [asdict(one) for one in log.fingerprints(stream, group, limit=limit, **which)]})


@router.post("/fingerprints/{fingerprint}", **spec("operate", None, "unknown_group", status=204))
def note(log: TheLog, access: CanOperate, stream: Stream, group: Group, fingerprint: str, body: Note) -> Response:
    """Say something about a kind of error; `none` is the kind of those without a fingerprint."""
    log.note_fingerprint(stream, group, fingerprint, by=access.name, **body.given())
    return Response(status_code=204)


@router.post(
    "/purge", **spec("operate", {"count": 3, "dry_run": False}, "unknown_group", "filter_needed", "naive_datetime")
)
def purge(log: TheLog, access: CanOperate, stream: Stream, group: Group, body: Purge) -> Answer:
    """Take dead letters out of the queue for good. They stay DEAD, hidden, until prune removes their events."""
    return moved(log.purge(stream, group, by=access.name, **body.given()))


@router.post(
    "/mend",
    **spec(
        *("operate", {"offset": 61378, "event_id": _NEW, "duplicate": False}),
        *("unknown_group", "unknown_event", "illegal_transition", "payload_unchanged", "invalid_payload"),
        *("reserved_stream", "commit_unknown"),
        status=201,
    ),
)
def mend(log: TheLog, access: CanOperate, stream: Stream, group: Group, body: Mend) -> Answer:
    """Append a mended copy of a dead letter's event, for this group alone. This needs the scope `append`, too."""
    require(access, APPEND, check_name(body.into or stream, "into"))
    named, payload = event_of(body.event_id), payload_of(body.payload)
    new = log.mend(stream, group, named, payload, into=body.into, reason=body.reason, by=access.name)
    return Answer(asdict(new), status_code=201)

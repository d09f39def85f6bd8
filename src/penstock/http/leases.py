"""Claim, settle, extend and release: the protocol for those who bring their own loop."""

from __future__ import annotations

import math
import time
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from pydantic import ConfigDict, Field
from starlette.responses import Response

from penstock.core.access import APPEND, WORK, Access
from penstock.core.lease import Idle, Settled
from penstock.core.observe import Claimed, LeaseEnded, everyone
from penstock.errors import InvalidInput, LeaseLost
from penstock.http.answers import Answer, lease_document, settled_document
from penstock.http.bodies import Body, Number, StrictRoute, Whole
from penstock.http.events import EVENT
from penstock.http.given import (
    CanWork,
    Carried,
    Group,
    IdempotencyKey,
    Stream,
    TheLog,
    ThePolls,
    Wait,
    require,
)
from penstock.http.outcomes import Settle
from penstock.http.shapes import ref
from penstock.http.spec import spec
from penstock.log.lease import Lease
from penstock.log.log import Log

router = APIRouter(prefix="/v1", tags=["leases"], route_class=StrictRoute)
_CLAIMED = {"attempts": 1, "failures": 0, "total_attempts": 1, "last_error": None}
LEASE = {
    "id": 1,
    "token": 1048577,
    "stream": "orders",
    "group": "fraud",
    "claimed_by": "w-1",
    "claimed_at": "2026-07-01T12:00:00+00:00",
    "expires_at": "2026-07-01T12:01:00+00:00",
    "events": [EVENT | _CLAIMED],
}
_SETTLED = {"published": 1, "failed": 0, "dead": 0, "released": 0, "kept": []}
LeaseId = Annotated[int, Path(ge=0, lt=2**63, description="The id of the lease.")]


class Claim(Body):
    """How much to claim, for whom, and how long to wait for it."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"limit": 100, "claimed_by": "w-1", "wait": 20}]})

    limit: Annotated[Whole, Field(ge=1, le=1_000)] = 100
    claimed_by: str | None = Field(default=None, description="Who works on it; else the name of the token.")
    lease_seconds: Number | None = None
    wait: Annotated[Number, Field(ge=0)] = 0.0


class Held(Body):
    """The token of the lease."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"token": 1048577}]})

    token: Whole | str


class Extend(Held):
    """For how long; else as long as the group's leases are."""

    seconds: Number | None = None


class Beating(Body):
    """A lease to keep. The id of a lease can be left out: its token holds it."""

    id: Annotated[Whole, Field(ge=0, lt=2**63)] | None = None
    token: Whole | str


class Heartbeats(Body):
    """The leases, of jobs and of events, that are still worked on."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"leases": [{"id": 1, "token": 1048577}], "run": 7}]})

    leases: Annotated[list[Beating], Field(max_length=10_000)]
    seconds: Number = 30.0
    run: Annotated[Whole, Field(ge=0, lt=2**63)] | None = Field(None, description="From `POST /v1/runs`.")


def token_of(sent: int | str) -> int:
    """Return a token, sent as a number or, by languages whose numbers are too short, as text."""
    if isinstance(sent, str):
        if not (sent.isascii() and sent.isdecimal() and len(sent) <= 19):
            raise InvalidInput("token must be the number that the claim returned.")
        sent = int(sent)
    if not 0 <= sent < 2**63:
        raise InvalidInput("token must be the number that the claim returned.")
    return sent


def held(log: Log, access: Access, lease_id: int, token: int | str) -> Lease:
    """Return the lease that a token proves, if its stream is one that the caller may work on."""
    lease = log.lease(lease_id, token_of(token))
    require(access, WORK, lease.stream)
    return lease


def _ended(lease: Lease, settled: Settled) -> Settled:
    """Tell observers how a lease ended; a request that is repeated is told again."""
    everyone.emit(LeaseEnded(f"{lease.stream}/{lease.group}", lease.id, settled))
    return settled


def nothing(idle: Idle) -> Response:
    """Answer that nothing is due, and when to ask again."""
    seconds = 1 if idle.seconds is None else min(60, max(1, math.ceil(idle.seconds)))
    return Response(status_code=204, headers={"Retry-After": str(seconds)})


@router.post(
    "/streams/{stream}/groups/{group}/claim",
    **spec("work", LEASE, "unknown_group", "lease_lost", "key_reused", shape=ref("Lease"), or_empty="Nothing is due."),
)
async def claim(
    request: Request,
    log: TheLog,
    polls: ThePolls,
    access: CanWork,
    carried: Carried,
    stream: Stream,
    group: Group,
    body: Claim | None = None,
    key: IdempotencyKey = None,
    wait: Wait = 0,
) -> Response:
    """Claim events. With `wait` the answer comes when there are some, or after so many seconds (20 at most).

    A repeated request with the same `Idempotency-Key` gets the same lease, or 409 `lease_lost` if it has ended.
    """
    asked = body or Claim()
    options: dict[str, Any] = {
        "limit": asked.limit,
        "claimed_by": access.name if asked.claimed_by is None else asked.claimed_by,
        "lease_seconds": asked.lease_seconds,
    }

    def attempt() -> Answer | Idle:
        began = time.monotonic()
        if key is None:
            found = log.try_claim(stream, group, **options)
        else:
            found = log.claim_once(access.name, key, stream, group, **options)
        if isinstance(found, Idle):
            return found
        everyone.emit(Claimed(f"{stream}/{group}", found.id, len(found), time.monotonic() - began))
        return Answer(lease_document(found, carried))

    answer = await polls.claimed(request, max(asked.wait, wait), attempt, (stream, group))
    return nothing(answer) if isinstance(answer, Idle) else answer


@router.post(
    "/leases/{lease_id}/settle",
    **spec(
        "work",
        _SETTLED,
        *("lease_lost", "settle_mismatch", "not_in_lease", "keep_needs_no_keys", "state_needs_key", "state_conflict"),
        *("unattributed_effect", "missing_field", "invalid_payload", "reserved_stream", "commit_unknown"),
        shape=ref("Settled"),
    ),
)
def settle(log: TheLog, access: CanWork, carried: Carried, lease_id: LeaseId, body: Settle) -> Answer:
    """Report all outcomes, state and emitted events in one transaction. The same request again is harmless."""
    lease = held(log, access, lease_id, body.token)
    for one in body.emit:
        require(access, APPEND, one.stream or "")
    if body.names_events:
        lease = lease.read()
    return Answer(settled_document(_ended(lease, lease.settle(**body.outcomes(lease))), carried))


@router.post("/leases/{lease_id}/extend", **spec("work", {"expires_at": "2026-07-01T12:02:00+00:00"}, "lease_lost"))
def extend(log: TheLog, access: CanWork, lease_id: LeaseId, body: Extend) -> Answer:
    """Extend a lease, to `seconds` from now."""
    return Answer({"expires_at": held(log, access, lease_id, body.token).extend(body.seconds)})


@router.post(
    "/leases/{lease_id}/release",
    **spec("work", _SETTLED | {"published": 0, "released": 1}, "lease_lost", shape=ref("Settled")),
)
def release(log: TheLog, access: CanWork, carried: Carried, lease_id: LeaseId, body: Held) -> Answer:
    """Give everything back, due at once and without counting a failure."""
    lease = held(log, access, lease_id, body.token)
    return Answer(settled_document(_ended(lease, lease.release()), carried))


@router.post(
    "/heartbeats", **spec("work", {"leases": [{"id": 1, "outcome": "extended"}], "wanted": "run"}, "unknown_run")
)
def heartbeats(log: TheLog, access: CanWork, body: Heartbeats) -> Answer:
    """Keep many leases at once, of jobs and of events.

    Each is `extended`, `lost`, being settled at this moment (`settling`), or, with the offsets of what should end in
    it, `cancel`. `wanted` says what the worker should do: `run`, `quiet` (finish, claim nothing new) or `stop`; it
    hears of that with its `run`.
    """
    tokens = [token_of(one.token) for one in body.leases]
    ids = [Lease.id_in(token) if one.id is None else one.id for one, token in zip(body.leases, tokens, strict=True)]
    given = dict(zip(ids, tokens, strict=True))
    if not access.may_everywhere(WORK):
        for one, token in given.items():
            try:
                held(log, access, one, token)
            except LeaseLost:
                continue
    wanted = None if body.run is None else log.beat_run(body.run, token=access.name)
    beat = log.heartbeats(given, body.seconds)

    def outcome(one: int) -> dict[str, Any]:
        if one in beat.cancel and one not in beat.lost | beat.settling:
            return {"id": one, "outcome": "cancel", "offsets": sorted(beat.cancel[one])}
        return {
            "id": one,
            "outcome": "lost" if one in beat.lost else "settling" if one in beat.settling else "extended",
        }

    return Answer({"leases": [outcome(one) for one in ids], "wanted": wanted or beat.wanted or "run"})

"""The requests of operations on many, and of dead letters in bulk."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Unpack

from penstock.connect.http import decode
from penstock.connect.http.call import Call, given, path_of
from penstock.connect.http.calls import event_fields
from penstock.connect.http.group_calls import WhichDead, filters, position_sent
from penstock.core.event import Appended
from penstock.core.group import Position
from penstock.log.fingerprints import FingerprintStats
from penstock.log.operations.plan import Plan
from penstock.log.operations.record import OperationInfo
from penstock.log.selection import Moved


def plan_operation(
    kind: str,
    stream: str,
    group: str,
    *,
    all: bool = False,
    to: Position | None = None,
    state: str | None = None,
    **which: Unpack[WhichDead],
) -> Call[Plan]:
    """Look what a redrive, replay, rewind or purge of many would move; nothing is changed."""
    body = _described(kind, stream, group, all=all, to=to, state=state, which=which)
    return Call("POST", path_of("operations"), _plan, {**body, "dry_run": True})


def start_operation(
    kind: str,
    stream: str,
    group: str,
    plan: Plan,
    *,
    all: bool = False,
    to: Position | None = None,
    state: str | None = None,
    canary: int | None = None,
    rate_per_second: float | None = None,
    stop_on_return: int | None = None,
    reason: str | None = None,
    **which: Unpack[WhichDead],
) -> Call[OperationInfo]:
    """Start what was planned, with the same filters; `PlanOutdated` if the plan does not hold any more."""
    care = given(canary=canary, rate_per_second=rate_per_second, stop_on_return=stop_on_return, reason=reason)
    named = {"cutoff": plan.cutoff, "count": plan.count, "planned_at": plan.planned_at}
    body = _described(kind, stream, group, all=all, to=to, state=state, which=which)
    return Call("POST", path_of("operations"), _operation, {**body, **care, **named})


def _described(kind: str, stream: str, group: str, *, all: bool, to: Any, state: Any, which: WhichDead) -> Any:
    where = None if to is None else position_sent(to)
    return given(kind=kind, stream=stream, group=group, all=all, to=where, state=state, **filters(which))


def _plan(document: Mapping[str, Any]) -> Plan:
    return decode.made(Plan, document, cutoff=_cutoff(document["cutoff"]))


def _operation(document: Mapping[str, Any]) -> OperationInfo:
    return decode.made(OperationInfo, document, cutoff=_cutoff(document["cutoff"]))


def _cutoff(sent: str | int) -> datetime | int:
    return sent if isinstance(sent, int) else datetime.fromisoformat(sent)


def operations(
    *, state: str | None = None, stream: str | None = None, before: int | None = None, limit: int = 50
) -> Call[list[OperationInfo]]:
    """Return operations, the newest first; pass the last one's id as `before` for the next page."""
    params = given(state=state, stream=stream, cursor=before, limit=limit)
    read = lambda found: [_operation(one) for one in found["operations"]]  # noqa: E731  # as in the other requests
    return Call("GET", path_of("operations"), read, params=params)


def get_operation(number: int) -> Call[OperationInfo]:
    """Return an operation: how far it is, and why it waits or stopped."""
    return Call("GET", path_of("operations", number), _operation)


def pause_operation(number: int) -> Call[OperationInfo]:
    """Let an operation move nothing more until it is resumed."""
    return Call("POST", path_of("operations", number, "pause"), _operation)


def resume_operation(number: int) -> Call[OperationInfo]:
    """Let a paused operation go on."""
    return Call("POST", path_of("operations", number, "resume"), _operation)


def abort_operation(number: int) -> Call[OperationInfo]:
    """End an operation; what it has moved stays moved."""
    return Call("POST", path_of("operations", number, "abort"), _operation)


# --- dead letters ---------------------------------------------------------------------------------------------------


def purge(
    stream: str, group: str, *, all: bool = False, dry_run: bool = False, **which: Unpack[WhichDead]
) -> Call[Moved]:
    """Take dead letters out of the queue for good; filters as for `redrive`."""
    path = path_of("streams", stream, "groups", group, "purge")
    return Call("POST", path, decode.moved_of, given(**filters(which), all=all, dry_run=dry_run))


def mend(
    stream: str, group: str, event_id: Any, payload: Any, *, into: str | None = None, reason: str | None = None
) -> Call[Appended]:
    """Append a mended copy of a dead letter's event for this group; the dead letter leaves the queue."""
    body = given(event_id=str(event_id), payload=event_fields(payload, {})["payload"], into=into, reason=reason)
    path = path_of("streams", stream, "groups", group, "mend")
    return Call("POST", path, lambda found: decode.made(Appended, found), body)


def fingerprints(
    stream: str,
    group: str,
    *,
    type: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    error: str | None = None,
    limit: int = 50,
) -> Call[list[FingerprintStats]]:
    """Return the kinds of errors of a group's dead letters, with counts, trend and notes."""
    times = {name: None if at is None else at.isoformat() for name, at in (("since", since), ("until", until))}
    params = given(type=type, error=error, limit=limit, **times)
    path = path_of("streams", stream, "groups", group, "fingerprints")
    return Call("GET", path, lambda found: [decode.kind_of(one) for one in found["fingerprints"]], params=params)


def note_fingerprint(
    stream: str,
    group: str,
    fingerprint: str | None,
    *,
    note: str | None = None,
    owner: str | None = None,
    muted: bool | None = None,
) -> Call[None]:
    """Say something about a kind of error; what is not given stays."""
    path = path_of("streams", stream, "groups", group, "fingerprints", fingerprint or "none")
    return Call("POST", path, lambda found: None, given(note=note, owner=owner, muted=muted))

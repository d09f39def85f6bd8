"""Operations on many deliveries: plan first, then start with the plan's cutoff and count, and watch."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import ConfigDict, Field

from penstock.core.access import OPERATE, READ, Access
from penstock.core.event import check_name
from penstock.errors import MissingField, UnknownOperation
from penstock.http.answers import Answer
from penstock.http.bodies import Body, Flag, Moment, Number, StrictRoute, Whole
from penstock.http.given import CanOperate, CanRead, Limit, TheLog, position_of, require
from penstock.http.operators import EventIds
from penstock.http.shapes import page, ref
from penstock.http.spec import spec
from penstock.log.log import Log
from penstock.log.operations.operation import Operation
from penstock.log.operations.plan import Plan
from penstock.log.operations.record import OperationInfo

router = APIRouter(prefix="/v1/operations", tags=["operations"], route_class=StrictRoute)
_AT = "2026-07-01T12:07:31+00:00"
_PLAN = {
    "cutoff": _AT,
    "count": 1204,
    "planned_at": _AT,
    "exact": True,
    "halted_keys_count": 0,
    "target": None,
}
_OPERATION = {
    "id": 41,
    "kind": "redrive",
    "stream": "orders",
    "group": "fraud",
    "state": "running",
    "phase": "waiting",
    "filter": {"error": "KeyError"},
    "cutoff": _AT,
    "canary": 20,
    "rate_per_second": 50.0,
    "stop_on_return": 1,
    "reason": "fixed in 4.2",
    "by": "ops",
    "planned": 1204,
    "moved": 20,
    "returned": 0,
    "canaries_moved": 20,
    "canaries_ended": 12,
    "waits_for": "8 of 20 canaries have no outcome yet.",
    "stop_reason": None,
    "held_by": None,
    "created_at": _AT,
    "started_at": _AT,
    "ended_at": None,
    "next_at": _AT,
}
OperationNumber = Annotated[int, Path(ge=0, lt=2**63, description="The number of the operation.")]
_FILTERS = ("event_ids", "error", "fingerprint", "type", "since", "until", "all")
_CARE = ("canary", "rate_per_second", "stop_on_return", "reason", "state")


class NewOperation(Body):
    """What to move and how carefully. First with `dry_run`; then with the plan's `cutoff`, `count` and `planned_at`."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    **{"kind": "redrive", "stream": "orders", "group": "fraud", "error": "KeyError", "canary": 20},
                    **{"rate_per_second": 50, "stop_on_return": 1, "dry_run": True},
                },
                {
                    **{"kind": "redrive", "stream": "orders", "group": "fraud", "error": "KeyError", "canary": 20},
                    **{"rate_per_second": 50, "stop_on_return": 1, "cutoff": _AT, "count": 1204},
                },
            ]
        }
    )

    kind: str = Field(description="redrive, replay, rewind or purge.")
    stream: str
    group: str
    event_ids: EventIds | None = None
    error: str | None = None
    fingerprint: str | None = None
    type: str | None = None
    since: Moment | None = None
    until: Moment | None = None
    all: Flag = False
    to: Whole | str | None = Field(None, description="Of a rewind: where to.")
    state: str = Field("keep", description="Of a rewind: keep or reset the state of keys.")
    canary: Whole | None = None
    rate_per_second: Number | Whole | None = None
    stop_on_return: Whole | None = None
    reason: str | None = None
    dry_run: Flag = False
    cutoff: Whole | Moment | None = Field(None, description="Of the plan.")
    count: Whole | None = Field(None, description="Of the plan.")
    planned_at: Moment | None = Field(None, description="Of the plan; a replay and a rewind need it.")

    def described(self, log: Log, by: str) -> Operation:
        """Return the operation that is asked for, not started."""
        given = self.given()
        options: dict[str, Any] = {name: given[name] for name in (*_FILTERS, *_CARE) if name in given}
        if self.to is not None:
            options["to"] = position_of(self.to, "to")
        return log.operation(self.kind, self.stream, self.group, by=by, **options)

    def plan(self) -> Plan:
        """Return the plan that the start names."""
        if self.cutoff is None or self.count is None:
            raise MissingField("An operation starts with the cutoff and the count of its plan: ask with dry_run first.")
        planned_at = self.planned_at or (None if isinstance(self.cutoff, int) else self.cutoff)
        if planned_at is None:
            raise MissingField("planned_at of the plan is missing.")
        return Plan(self.cutoff, self.count, planned_at)


_POST = spec(
    *("operate", _OPERATION),
    *("unknown_group", "filter_needed", "naive_datetime", "plan_outdated", "operation_option", "pruned"),
    shape=ref("Operation"),
    status=202,
)
_POST["responses"][200] = {
    "description": "The plan, with `dry_run`.",
    "content": {"application/json": {"schema": ref("Plan"), "example": _PLAN}},
}


@router.post("", **_POST)
def start(log: TheLog, access: CanOperate, body: NewOperation) -> Answer:
    """Plan (`dry_run`) or start an operation. Engines and this service run it; `Location` names it."""
    require(access, OPERATE, check_name(body.stream, "stream"))
    asked = body.described(log, access.name)
    if body.dry_run:
        return Answer(asdict(asked.plan()), status_code=200)
    info = asked.start(body.plan()).info
    return Answer(asdict(info), status_code=202, headers={"Location": f"/v1/operations/{info.id}"})


@router.get(
    "",
    **spec(
        "read",
        {"operations": [_OPERATION], "next_cursor": "41"},
        shape=page("operations", "Operation"),
        reads=True,
    ),
)
def operations(
    log: TheLog,
    access: CanRead,
    state: str | None = None,
    stream: str | None = None,
    group: str | None = None,
    cursor: Annotated[int | None, Query(ge=0, lt=2**63, description="The `next_cursor` of the page before.")] = None,
    limit: Limit = 50,
) -> Answer:
    """List operations, the newest first, of the streams that the token may read."""
    if stream is not None:
        require(access, READ, stream)
    found = log.operations(state=state, stream=stream, group=group, before=cursor, limit=limit)
    seen = [asdict(one) for one in found if access.may(READ, one.stream)]
    return Answer({"operations": seen, "next_cursor": str(found[-1].id) if len(found) == limit else None})


def _one(log: Log, access: Access, scope: str, number: int) -> Operation:
    """Return an operation. To whoever may not read its stream it does not exist: numbers can be guessed."""
    found = log.get_operation(number)
    stream = found.info.stream
    if not access.may(scope, stream) and not access.may(READ, stream):
        raise UnknownOperation(f"There is no operation {number}.")
    require(access, scope, stream)
    return found


def _answer(info: OperationInfo) -> Answer:
    return Answer(asdict(info))


@router.get("/{number}", **spec("read", _OPERATION, "unknown_operation", shape=ref("Operation"), reads=True))
def operation(log: TheLog, access: CanRead, number: OperationNumber) -> Answer:
    """Return an operation: how far it is, what came back, and why it waits or stopped."""
    return _answer(_one(log, access, READ, number).info)


_CHANGED = spec("operate", _OPERATION, "unknown_operation", "operation_ended", shape=ref("Operation"))


@router.post("/{number}/pause", **_CHANGED)
def pause(log: TheLog, access: CanOperate, number: OperationNumber) -> Answer:
    """Move nothing more until it is resumed."""
    return _answer(_one(log, access, OPERATE, number).pause(by=access.name))


@router.post("/{number}/resume", **_CHANGED)
def resume(log: TheLog, access: CanOperate, number: OperationNumber) -> Answer:
    """Let a paused operation go on."""
    return _answer(_one(log, access, OPERATE, number).resume(by=access.name))


@router.post("/{number}/abort", **_CHANGED)
def abort(log: TheLog, access: CanOperate, number: OperationNumber) -> Answer:
    """End an operation; what it has moved stays moved."""
    return _answer(_one(log, access, OPERATE, number).abort(by=access.name))

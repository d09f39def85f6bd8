"""Start an operation, and change its course: pause, resume, abort."""

from __future__ import annotations

from dataclasses import replace

import orjson

from penstock.core.group import Group
from penstock.core.operation import ACTIVE, Kind, OperationState, Phase
from penstock.errors import OperationEnded, PlanOutdated
from penstock.log import audit, checks, groups
from penstock.log.operations.draft import Draft
from penstock.log.operations.plan import Order, Plan, aimed, check_plan
from penstock.log.operations.record import OperationInfo, found, info_of
from penstock.log.transact import transact
from penstock.stores.base import Store, Transaction
from penstock.stores.rows import OperationRow


def start(store: Store, order: Order, plan: Plan) -> int:
    """Store an operation that does what a plan has found; returns its number. Whoever does maintenance runs it."""

    def work(tx: Transaction) -> int:
        group = groups.locked(tx, order.stream, order.group)
        check_plan(tx, group, order, plan)
        wanted = replace(order, to=aimed(tx, group, order)) if order.kind is Kind.REWIND else order
        _check_first(tx, group, wanted, plan)
        by_time = wanted.kind in (Kind.REDRIVE, Kind.PURGE)
        row = tx.one(
            "operation.add",
            kind=wanted.kind,
            stream=wanted.stream,
            group_name=wanted.group,
            group_id=group.group_id,
            filter=orjson.dumps(wanted.detail()).decode(),
            cutoff_at=plan.cutoff if by_time else None,
            cutoff_offset=None if by_time else plan.cutoff,
            canary=wanted.canary,
            rate_per_second=wanted.rate_per_second,
            stop_on_return=wanted.stop_on_return,
            reason=wanted.reason,
            by=wanted.by,
            planned=plan.count,
            phase=Phase.CANARY if wanted.canary else Phase.MOVING,
            now=tx.now(),
        )
        assert row is not None
        number = int(row.id)
        record(tx, wanted.by, "start", number, wanted, plan.count)
        return number

    return transact(store, work)


def _check_first(tx: Transaction, group: Group, order: Order, plan: Plan) -> None:
    """`PlanOutdated` if another operation does the same: of two people who start what both have seen, one wins."""
    which = {"kind": order.kind, "filter": orjson.dumps(order.detail()).decode(), "planned_at": plan.planned_at}
    twin = tx.one("operation.twin", group_id=group.group_id, **which)
    if twin is not None:
        what = "does the same, and has not ended" if twin.runs else "was started after this plan was made"
        raise PlanOutdated(f"Operation {twin.id} {what}; nothing was started.")


def record(tx: Transaction, by: str, what: str, number: int, order: Order, count: int) -> None:
    """Write the audit row of an operation's start."""
    careful = {
        "canary": order.canary,
        "rate_per_second": order.rate_per_second,
        "stop_on_return": order.stop_on_return,
        "reason": order.reason,
    }
    given = {name: value for name, value in careful.items() if value is not None}
    detail = {"operation": number, "kind": order.kind, "filter": order.detail(), **given}
    audit.record(tx, by, f"operation_{what}", stream=order.stream, group=order.group, count=count, detail=detail)


def note(tx: Transaction, by: str, what: str, row: OperationRow, count: int, why: str | None = None) -> None:
    """Write the audit row of what happened to a stored operation."""
    detail = {"operation": row.id, "kind": row.kind} | ({} if why is None else {"reason": why})
    names = {"stream": row.stream, "group": row.group_name}
    audit.record(tx, by, f"operation_{what}", count=count, detail=detail, **names)


def pause(store: Store, number: int, by: str | None) -> OperationInfo:
    """Move nothing more until somebody resumes it."""
    return _change(store, number, by, "pause", OperationState.PAUSED)


def resume(store: Store, number: int, by: str | None) -> OperationInfo:
    """Go on; a rate begins anew, so that a pause is not made up for."""
    return _change(store, number, by, "resume", OperationState.RUNNING)


def abort(store: Store, number: int, by: str | None) -> OperationInfo:
    """End an operation; what it has moved stays moved."""
    return _change(store, number, by, "abort", OperationState.ABORTED)


def _change(store: Store, number: int, by: str | None, what: str, to: OperationState) -> OperationInfo:
    checks.count(number, "an operation")
    author = checks.author(by)

    def work(tx: Transaction) -> OperationInfo:
        found(tx, number)
        row: OperationRow | None = tx.one("operation.lock", id=number)
        assert row is not None
        if row.state == to:
            return info_of(row)
        if row.state not in ACTIVE:
            raise OperationEnded(f"Operation {number} is {row.state}.")
        now = tx.now()
        draft = Draft.of(row)
        draft.state, draft.next_at, draft.expires_at = to, now, None
        draft.rate_at = now if row.rate_at is not None else None
        if to is OperationState.ABORTED:
            draft.ended_at, draft.note = now, f"aborted by {author}"
        draft.write(tx, number)
        note(tx, author, what, row, row.moved)
        return info_of(found(tx, number))

    return transact(store, work)

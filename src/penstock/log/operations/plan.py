"""Plans: what an operation would move, up to a cutoff, so that the set does not change between look and start."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.core import limits
from penstock.core.event import check_time
from penstock.core.group import Group, Position
from penstock.core.operation import Kind
from penstock.errors import InvalidInput, PlanOutdated
from penstock.log import checks, groups, positions, redrive, rewind
from penstock.log.selection import Selection
from penstock.log.transact import look
from penstock.stores.base import Store, Transaction


@dataclass(frozen=True, slots=True)
class Order:
    """What somebody wants an operation to do, and how carefully."""

    kind: Kind
    stream: str
    group: str
    which: Selection
    to: Position | None = None
    state: str = "keep"
    canary: int | None = None
    rate_per_second: float | None = None
    stop_on_return: int | None = None
    reason: str | None = None
    by: str = "unknown"

    def detail(self) -> dict[str, Any]:
        """Return the filter as it is stored, and shown."""
        if self.kind is not Kind.REWIND:
            return self.which.detail()
        to = self.to.isoformat() if isinstance(self.to, datetime) else self.to
        return {"to": to, "state": self.state}


@dataclass(frozen=True, slots=True)
class Plan:
    """What an operation would move. Later deaths, or later events, are not part of it."""

    cutoff: datetime | int  # of dead letters a time of the database, else an offset
    count: int
    planned_at: datetime
    exact: bool = True  # else there are more
    halted_keys_count: int = 0  # keys of these that stay behind another dead letter, which halts them
    target: int | None = None  # of a rewind


def plan(store: Store, order: Order) -> Plan:
    """Look what an operation would do; nothing is changed."""

    def work(tx: Transaction) -> Plan:
        group = groups.get(tx, order.stream, order.group)
        now = tx.now()
        if order.kind in (Kind.REDRIVE, Kind.PURGE):
            count, halted = redrive.count(tx, group, order.which, now), 0
            if order.kind is Kind.REDRIVE and group.ordered and group.halts:
                row = tx.one("redrive.held", group_id=group.group_id, **order.which.params(now))
                halted = 0 if row is None else int(row.keys)
            return Plan(now, count, now, halted_keys_count=halted)
        horizon = tx.horizon()
        if order.kind is Kind.REWIND:
            target = aimed(tx, group, order)
            return Plan(horizon, rewind.count(tx, group, target), now, target=target)
        count = count_published(tx, group, order.which, horizon)
        return Plan(horizon, count, now, exact=count < limits.PLAN_COUNT)

    return look(store, work)


def aimed(tx: Transaction, group: Group, order: Order) -> int:
    """Return the offset that a rewind goes back to."""
    if order.to is None:
        raise InvalidInput('A rewind needs `to`: "beginning", "end", an offset or a datetime.')
    return rewind.aim(tx, group, order.to)


def count_published(tx: Transaction, group: Group, which: Selection, upto: int) -> int:
    """Count what a replay would move, up to a limit."""
    low, high = positions.between(tx, group.stream, which.since, which.until)
    most = limits.PLAN_COUNT
    params = {"group_id": group.group_id, "stream": group.stream, "after": low, "upto": min(high, upto), "most": most}
    return min(most, sum(int(row.deliveries) for row in tx.rows("replay.count", **params, **which.params())))


def check_plan(tx: Transaction, group: Group, order: Order, given: Plan) -> None:
    """`PlanOutdated` if a plan is too old, or does not find any more what it found. The group is locked."""
    now = tx.now()
    wants_time = order.kind in (Kind.REDRIVE, Kind.PURGE)
    checks.count(given.count, "count")
    check_time(given.planned_at, "planned_at")
    if wants_time != isinstance(given.cutoff, datetime):
        raise InvalidInput(f"The cutoff of a {order.kind} is {'a time' if wants_time else 'an offset'}.")
    if isinstance(given.cutoff, datetime):
        check_time(given.cutoff, "cutoff")
    else:
        checks.count(given.cutoff, "cutoff")
    age = (now - given.planned_at).total_seconds()
    if not 0 <= age <= limits.PLAN_SECONDS:
        raise PlanOutdated(f"The plan is {age:,.0f} seconds old, and good for {limits.PLAN_SECONDS:,.0f}.")
    if isinstance(given.cutoff, datetime):
        if given.cutoff > now:
            raise PlanOutdated(f"The cutoff {given.cutoff.isoformat()} has not come yet; nothing was started.")
        found = redrive.count(tx, group, order.which, given.cutoff)
    elif given.cutoff > tx.horizon():
        raise PlanOutdated(f"The cutoff {given.cutoff} is above the horizon; nothing was started.")
    elif order.kind is Kind.REWIND:
        target = aimed(tx, group, order)
        if given.target is not None and target != given.target:
            raise PlanOutdated(f"The plan goes back to offset {given.target}, and now that would be {target}.")
        return  # a group that works passes more events, which does not change where a rewind goes
    else:
        found = count_published(tx, group, order.which, given.cutoff)
    if found != given.count:
        raise PlanOutdated(f"The plan found {given.count:,} deliveries, and now there are {found:,}.")

"""How much of a group or a job type may be claimed now, by `max_in_flight` and `rate_per_second`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from penstock.core.group import Group
from penstock.core.job import PRIORITIES, JobName, name_of
from penstock.stores.base import Transaction
from penstock.stores.rows import LaneRow

_LOOK_SECONDS: Final = 0.1  # until something that is in work may have ended
_BURST_SECONDS: Final = 1.0  # of a rate, that may be claimed at once


@dataclass(frozen=True, slots=True)
class Allowance:
    """How many events may be claimed now, and when to look again if that is none."""

    count: int
    again: datetime
    name: str
    tokens: float | None  # of its rate; None without one

    def spend(self, tx: Transaction, members: int, now: datetime) -> None:
        """Note that so many were claimed."""
        if self.tokens is not None:
            tx.run("limits.spend", name=self.name, tokens=self.tokens - members, now=now)


def allowance(tx: Transaction, group: Group, lanes: Sequence[LaneRow], now: datetime) -> Allowance:
    """Return what a locked group with limits may claim."""
    most, rate = group.max_in_flight, group.rate_per_second
    name, in_flight = f"{group.stream}/{group.group_name}", sum(lane.in_flight for lane in lanes)
    job = name_of(group.stream)
    if job is not None:  # its other priorities are claimed from side by side: the type's row is locked after the group
        row = tx.one("limits.lock_type", queue=job.queue, job_type=job.type)
        if row is not None:
            most, rate = row.max_in_flight, row.rate_per_second
        name, in_flight = f"jobs:{job.queue}:{job.type}", _in_flight(tx, job)
    room = None if most is None else max(0, most - in_flight)
    if rate is None:
        return Allowance(room or 0, now + timedelta(seconds=_LOOK_SECONDS), name, None)
    tokens = _tokens(tx, name, rate, now)
    again = now + timedelta(seconds=max(0.0, (1 - tokens) / rate) if tokens < 1 else _LOOK_SECONDS)
    return Allowance(int(tokens) if room is None else min(int(tokens), room), again, name, tokens)


def _in_flight(tx: Transaction, job: JobName) -> int:
    streams = [JobName(job.queue, priority, job.type).stream for priority in PRIORITIES]
    row = tx.one("limits.in_flight", streams=streams)
    return 0 if row is None else int(row.in_flight)


def _tokens(tx: Transaction, name: str, rate: float, now: datetime) -> float:
    """Return the tokens of a rate as of now."""
    full = max(1.0, rate * _BURST_SECONDS)
    row = tx.one("limits.tokens", name=name)
    if row is None:
        return full
    passed = max(0.0, (now - row.filled_at).total_seconds())
    return float(min(full, row.tokens + rate * passed))

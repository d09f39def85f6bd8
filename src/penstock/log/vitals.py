"""Vitals: what is wrong with the log as a whole, in numbers. The `stats` say it of each group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from penstock.core.limits import BLOCKED_PER_LANE, RUN_LOST_SECONDS
from penstock.log.transact import look
from penstock.stores.base import Row, Store, Transaction

HOLDERS: Final = ("active", "idle in transaction", "prepared", "other")  # kinds of transactions that hold the horizon
EXPIRED_MOST: Final = 1_000


@dataclass(frozen=True, slots=True)
class Blocked:
    """The deliveries of a group that wait for an earlier one of their key, and the lanes that they stop."""

    waiting: int
    lanes: int


@dataclass(frozen=True, slots=True)
class Vitals:
    """The result of `log.vitals()`."""

    horizon: int
    last_offset: int  # given out last, visible or not
    held_seconds: Mapping[str, float]  # by kind of `HOLDERS`: since when the oldest of them appends
    blocked: Mapping[tuple[str, str], Blocked]  # by stream and group, where there are any
    runs: Mapping[str, tuple[int, int]]  # by engine: running, and lost
    expired_leases: int  # nobody has taken back; counted up to `EXPIRED_MOST`
    schema_version: int


def vitals(store: Store) -> Vitals:
    """Look at everything; nothing is written."""
    return look(store, _vitals)


def _vitals(tx: Transaction) -> Vitals:
    now = tx.now()
    last = tx.one("horizon.last")
    schema = tx.one("vitals.schema")
    expired = tx.one("vitals.expired", now=now, most=EXPIRED_MOST)
    assert last is not None and schema is not None and expired is not None
    since = now - timedelta(seconds=RUN_LOST_SECONDS)
    return Vitals(
        tx.horizon(),
        int(last.last),
        _held(tx.rows("doctor.holders"), now),
        {
            (row.stream, row.group_name): Blocked(int(row.waiting), int(row.lanes))
            for row in tx.rows("vitals.blocked", most=BLOCKED_PER_LANE)
        },
        {row.engine: (int(row.running), int(row.lost)) for row in tx.rows("vitals.runs", since=since)},
        int(expired.leases),
        int(schema.version),
    )


def _held(rows: list[Row], now: datetime) -> dict[str, float]:
    held = dict.fromkeys(HOLDERS, 0.0)
    for row in rows:
        kind = "prepared" if getattr(row, "gid", None) is not None else row.state if row.state in HOLDERS else "other"
        seconds = 0.0 if row.started_at is None else (now - row.started_at).total_seconds()
        held[kind] = max(held[kind], seconds)
    return held

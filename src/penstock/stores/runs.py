"""Runs: one row for every run of an engine. It says that the run lives, and what is wanted of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import orjson

from penstock.core.limits import RUN_LOST_SECONDS
from penstock.errors import UnknownRun
from penstock.stores.base import Row, Transaction

WANTED = ("run", "quiet", "stop")


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A run of an engine, as of now."""

    id: int
    name: str
    app: str | None
    engine: str
    version: str
    host: str
    pid: int
    groups: tuple[str, ...]
    started_at: datetime
    heartbeat_at: datetime
    wanted: str
    ended_at: datetime | None
    outcome: str | None
    state: str  # running, lost (no heartbeat for long) or ended


@dataclass(frozen=True, slots=True)
class NewRun:
    """What is written down at the start of a run."""

    name: str
    app: str | None
    engine: str
    version: str
    host: str
    pid: int
    groups: Sequence[str]


def start(tx: Transaction, new: NewRun) -> int:
    """Write the row; returns its id."""
    row = tx.one(
        "run.start",
        name=new.name,
        app=new.app,
        engine=new.engine,
        version=new.version,
        host=new.host,
        pid=new.pid,
        groups=orjson.dumps(list(new.groups)).decode(),
        now=tx.now(),
    )
    assert row is not None
    return int(row.id)


def beat(tx: Transaction, run: int) -> str:
    """Say that the run lives; returns what is wanted of it. A run without a row is to go on."""
    row = tx.one("run.beat", run=run, now=tx.now())
    return "run" if row is None else str(row.wanted)


def end(tx: Transaction, run: int, outcome: str) -> None:
    """The run is over; the first outcome counts."""
    tx.run("run.end", run=run, outcome=outcome, now=tx.now())


def listed(tx: Transaction, *, all: bool) -> list[RunInfo]:
    """Runs, the newest first: those that are not over, or all."""
    now = tx.now()
    return [_info(row, now) for row in tx.rows("run.list", everything=all)]


def want(tx: Transaction, run: int, wanted: str, by: str) -> RunInfo:
    """Tell a run what to do. One that is over is left alone."""
    now = tx.now()
    known = next((_info(row, now) for row in tx.rows("run.find", run=run)), None)
    if known is None:
        raise UnknownRun(f"There is no run {run}.")
    if known.state == "ended":
        return known
    tx.run("run.want", run=run, wanted=wanted)
    detail: dict[str, Any] = {"run": run, "name": known.name, "wanted": wanted}
    text = orjson.dumps(detail).decode()
    tx.run("audit.add", by=by, action=f"run_{wanted}", stream=None, group_name=None, count=None, detail=text, now=now)
    return _info(tx.rows("run.find", run=run)[0], now)


def _info(row: Row, now: datetime) -> RunInfo:
    lost = now - row.heartbeat_at > timedelta(seconds=RUN_LOST_SECONDS)
    state = "ended" if row.ended_at is not None else "lost" if lost else "running"
    groups = tuple(orjson.loads(row.groups))
    return RunInfo(
        row.id,
        row.name,
        row.app,
        row.engine,
        row.version,
        row.host,
        row.pid,
        groups,
        row.started_at,
        row.heartbeat_at,
        row.wanted,
        row.ended_at,
        row.outcome,
        state,
    )

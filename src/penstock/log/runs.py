"""Runs: one row per run of an engine, with its heartbeat and what it should do."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import orjson

from penstock.core.limits import RUN_LOST_SECONDS
from penstock.errors import InvalidInput, UnknownRun
from penstock.log import audit, checks
from penstock.log.transact import look, transact
from penstock.stores.base import Row, Store, Transaction

_OVERLAP_SECONDS = 10.0  # longer than a claim needs from the id of its lease to its commit


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The current state of a run of an engine."""

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
    state: str  # running, lost (no heartbeat for `RUN_LOST_SECONDS`) or ended


@dataclass(frozen=True, slots=True)
class NewRun:
    """What is recorded at the start of a run."""

    name: str
    app: str | None
    engine: str
    version: str
    host: str
    pid: int
    groups: Sequence[str]


def start(store: Store, new: NewRun) -> int:
    """Record the start of a run; returns its id."""

    def work(tx: Transaction) -> int:
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

    return transact(store, work)


def beat(store: Store, run: int, token: str | None = None) -> str:
    """Record a heartbeat; returns what the run should do: run, quiet or stop. A run without a row continues.

    With `token`, the name of one, the run must be over HTTP and begun with it; `UnknownRun` if it is not, or has ended.
    """
    row = transact(store, lambda tx: tx.one("run.beat", run=run, token=token, now=tx.now()))
    if row is None and token is not None:
        raise UnknownRun(f"The token {token!r} has begun no run {run}, or the run has ended.")
    return "run" if row is None else str(row.wanted)


def wanted_of(store: Store, run: int) -> str | None:
    """Return what a run should do: run, quiet or stop; None if it has no row."""
    row = look(store, lambda tx: tx.one("run.wanted", run=run))
    return None if row is None else str(row.wanted)


def order(store: Store, run: int, wanted: str) -> None:
    """Tell the tasks of a run what to do; for its own driver, so without an audit row."""
    transact(store, lambda tx: tx.run("run.want", run=run, wanted=wanted))


def end(store: Store, run: int, outcome: str) -> None:
    """Record the end of a run; the first outcome counts."""
    transact(store, lambda tx: tx.run("run.end", run=run, outcome=outcome, now=tx.now()))


class RunCounts:
    """How many events had each outcome in a run, by group: sums over its leases, each read until it has ended.

    Ids are given before the commit, so a lease may appear below one that was already read; hence every reading
    goes back to the newest lease of `_OVERLAP_SECONDS` ago.
    """

    def __init__(self, store: Store, run: int) -> None:
        self._store = store
        self._run = run
        newest = look(store, lambda tx: tx.one("run.newest_lease"))
        assert newest is not None
        self._after = int(newest.id)  # a run has no leases before it begins to count
        self._newest = [(time.monotonic(), self._after)]  # the newest lease at each of the last readings
        self._open: set[int] = set()
        self._ended: set[int] = set()  # counted, above `_after`
        self.groups: dict[str, Counter[str]] = {}

    def read(self) -> None:
        """Read the leases that are new or were open at the last time."""
        known = self._open | self._ended
        found = look(
            self._store, lambda tx: tx.rows("run.leases", run=self._run, after=self._after, open=sorted(self._open))
        )
        for row in found:
            counts = self.groups.setdefault(f"{row.stream}/{row.group_name}", Counter())
            if row.id not in known and row.members:
                counts["leases"] += 1
            if row.ended and row.id not in self._ended:
                for name in ("published", "failed", "dead", "released"):
                    counts[name] += getattr(row, name) or 0
            (self._ended if row.ended else self._open).add(row.id)
        self._open -= self._ended
        self._go_on(max((row.id for row in found), default=0))

    def _go_on(self, newest: int) -> None:
        now = time.monotonic()
        self._newest.append((now, max(newest, self._newest[-1][1])))
        while len(self._newest) > 1 and self._newest[1][0] < now - _OVERLAP_SECONDS:
            self._newest.pop(0)
        if self._newest[0][0] < now - _OVERLAP_SECONDS:
            self._after = self._newest[0][1]
            self._ended = {one for one in self._ended if one > self._after}


def listed(store: Store, *, all: bool) -> list[RunInfo]:
    """Return runs, newest first: those that have not ended, or all."""

    def work(tx: Transaction) -> list[RunInfo]:
        now = tx.now()
        return [_info(row, now) for row in tx.rows("run.list", everything=all)]

    return look(store, work)


def want(store: Store, run: Any, wanted: str, by: str | None) -> RunInfo:
    """Tell a run to run, be quiet or stop; an ended run is not changed."""
    known, author = checks.count(run, "run"), by or checks.whoami()
    if known >= 2**63:
        raise InvalidInput("run is too large.")
    return transact(store, lambda tx: _want(tx, known, wanted, author))


def _want(tx: Transaction, run: int, wanted: str, by: str) -> RunInfo:
    now = tx.now()
    known = next((_info(row, now) for row in tx.rows("run.find", run=run)), None)
    if known is None:
        raise UnknownRun(f"There is no run {run}.")
    if known.state == "ended":
        return known
    tx.run("run.want", run=run, wanted=wanted)
    audit.record(tx, by, f"run_{wanted}", detail={"run": run, "name": known.name, "wanted": wanted})
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

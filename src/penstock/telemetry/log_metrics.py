"""Metrics of the whole log, from its database: what is true now, whoever did it.

They are states, so all of them are gauges: what was published, for example, falls when a stream is pruned. They are
computed at most once every few seconds, however many ask, and by one thread at a time.
"""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Callable, Iterable
from importlib import metadata
from typing import Final

from penstock.core.limits import LABEL_SETS, METRICS_SECONDS
from penstock.errors import PenstockError
from penstock.log.log import Log
from penstock.log.stats import GroupStats, Stats
from penstock.log.vitals import Vitals
from penstock.telemetry.families import About, Bounded, Family, Labels, place_of

_STATE: Final = ("stream", "group", "state")
BUILD = About("penstock_build_info", "gauge", "1, with the version of Penstock and of Python.", ("version", "python"))
UP = About("penstock_log_up", "gauge", "1 if the database answered when these metrics were computed, else 0.", ())
TOOK = About("penstock_log_seconds", "gauge", "How long it took to compute the metrics of the log.", ())
SCHEMA = About("penstock_schema_version", "gauge", "The newest migration that ran.", ())
HORIZON = About("penstock_horizon_offset", "gauge", "The offset up to which everything is visible.", ())
LAST = About("penstock_last_offset", "gauge", "The offset that was given out last.", ())
HELD = About(
    "penstock_horizon_held_seconds", "gauge", "Age of the oldest transaction that appends and is open.", ("kind",)
)
RUNS = About("penstock_runs", "gauge", "Runs that have not ended; `lost` ones send no heartbeat.", ("engine", "state"))
EXPIRED = About("penstock_expired_leases", "gauge", "Leases that are over and not taken back, 1,000 at most.", ())
EVENTS = About("penstock_stream_events", "gauge", "Events in a stream.", ("stream",))
DELIVERIES = About("penstock_group_deliveries", "gauge", "Deliveries of a group in each state.", _STATE)
LAG = About("penstock_group_lag", "gauge", "Deliveries of a group that are not finished.")
OLDEST = About("penstock_group_oldest_seconds", "gauge", "Age of the oldest event that a group has not finished.")
PAUSED = About("penstock_group_paused", "gauge", "1 while a group is paused.")
CIRCUIT = About("penstock_group_circuit_open", "gauge", "1 while the target of a group is down.")
LEASES = About("penstock_group_open_leases", "gauge", "Leases of a group that are being worked on.")
RATE = About("penstock_group_published_per_second", "gauge", "Deliveries a second that ended well, of late.")
BLOCKED = About("penstock_group_blocked", "gauge", "Deliveries that wait for an earlier one of their key.")
LANES = About("penstock_group_blocked_lanes", "gauge", "Lanes that stand still, because too much is blocked in them.")
JOBS = About("penstock_jobs", "gauge", "Jobs of a type in each state; those that ended, removed ones included.",
             ("queue", "type", "state"))  # fmt: skip
OF_LOG: Final = (BUILD, UP, TOOK, SCHEMA, HORIZON, LAST, HELD, RUNS, EXPIRED)
OF_GROUPS: Final = (EVENTS, DELIVERIES, LAG, OLDEST, PAUSED, CIRCUIT, LEASES, RATE, BLOCKED, LANES, JOBS)
ALL: Final = (*OF_LOG, *OF_GROUPS)
_ENGINES: Final = ("http", "ingest", "local", "spark")
_PATIENCE: Final = 20  # times as long as it takes to compute them, metrics are good at least


class LogMetrics:
    """The metrics of a log, remembered for a while."""

    def __init__(self, log: Log, seconds: float = METRICS_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._until = 0.0
        self._found: list[Family] | None = None
        self.computed = 0  # times

    def families(self) -> list[Family]:
        """Return the metrics: those of a moment ago while they are good, or while somebody computes new ones."""
        found = self._found
        if found is not None and self._clock() < self._until:
            return found
        if found is not None and self._lock.locked():
            return found
        with self._lock:
            if self._found is None or self._clock() >= self._until:
                began = self._clock()
                self._found = self._compute(began)
                took = self._clock() - began
                self._until = began + took + max(self._seconds, _PATIENCE * took)
            return self._found

    def _compute(self, began: float) -> list[Family]:
        self.computed += 1
        about = Family(BUILD, {(_version(), platform.python_version()): 1})
        try:
            stats, vitals = self._log.stats(), self._log.vitals()
        except PenstockError:
            return [about, Family(UP, {(): 0})]
        return [
            about,
            Family(UP, {(): 1}),
            *_of_log(vitals),
            *_of_groups(stats, vitals),
            Family(TOOK, {(): self._clock() - began}),
        ]


def _version() -> str:
    try:
        return metadata.version("penstock")
    except metadata.PackageNotFoundError:  # not installed: run from a source folder
        return "unknown"


def _of_log(vitals: Vitals) -> Iterable[Family]:
    yield Family(SCHEMA, {(): vitals.schema_version})
    yield Family(HORIZON, {(): vitals.horizon})
    yield Family(LAST, {(): vitals.last_offset})
    yield Family(HELD, {(kind,): seconds for kind, seconds in vitals.held_seconds.items()})
    runs = Family(RUNS)
    for engine in sorted({*_ENGINES, *vitals.runs}):
        running, lost = vitals.runs.get(engine, (0, 0))
        runs.values |= {(engine, "running"): running, (engine, "lost"): lost}
    yield runs
    yield Family(EXPIRED, {(): vitals.expired_leases})


def _of_groups(stats: Stats, vitals: Vitals) -> Iterable[Family]:
    found = {about: Family(about) for about in OF_GROUPS}
    bounded = Bounded()
    for one in stats.groups:
        place = bounded(place_of(one.stream, one.group))
        for state in ("pending", "claimed", "published", "dead"):
            _add(found[DELIVERIES], (*place, state), getattr(one, state))
        _add(found[LAG], place, one.lag)
        _add(found[LEASES], place, one.open_leases)
        for about, value in _flows(one).items():
            _add(found[about], place, value)
        blocked = vitals.blocked.get((one.stream, one.group))
        _add(found[BLOCKED], place, 0 if blocked is None else blocked.waiting)
        _add(found[LANES], place, 0 if blocked is None else blocked.lanes)
        _worst(found[OLDEST], place, one.oldest_seconds or 0.0)
        _worst(found[PAUSED], place, int(one.paused))
        _worst(found[CIRCUIT], place, int(one.unavailable is not None))
    streams = Bounded()
    for events in stats.streams:
        _add(found[EVENTS], streams(place_of(events.stream, None))[:1], events.events)
    for kind in stats.job_types[:LABEL_SETS]:
        states = (kind.pending, kind.claimed, kind.completed_total, kind.exhausted_total)
        for state, count in zip(("unclaimed", "in_progress", "completed", "exhausted"), states, strict=True):
            _add(found[JOBS], (kind.queue, kind.type, state), count)
    return found.values()


def _flows(one: GroupStats) -> dict[About, float]:
    """Return what a group does over time. Counts that never fall would come from here."""
    return {RATE: one.published_per_second}


def _add(family: Family, key: Labels, value: float) -> None:
    known = family.values.get(key, 0)
    assert isinstance(known, int | float)
    family.values[key] = known + value


def _worst(family: Family, key: Labels, value: float) -> None:
    known = family.values.get(key, 0)
    assert isinstance(known, int | float)
    family.values[key] = max(known, value)

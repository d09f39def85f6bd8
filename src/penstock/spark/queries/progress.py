"""The counters of a query: sums over the leases of its run, like those of handlers."""

from __future__ import annotations

import time
from collections.abc import Mapping

from penstock.engine.counters import NAMES
from penstock.engine.outage import try_once
from penstock.log.log import Log
from penstock.log.runs import RunCounts

_READ_SECONDS = 0.5


class QueryCounters:
    """Counters of one query's group; all zero without a run."""

    def __init__(self, log: Log, name: str, run: int | None) -> None:
        self._log = log
        self._name = name
        self._run = run
        self._counts: RunCounts | None = None
        self._again = 0.0

    def start(self) -> None:
        """Count from now on."""
        if self._run is not None:
            self._counts = self._log.count_run(self._run)

    def read(self) -> None:
        """Read what is new; an outage leaves it to the next time."""
        if self._counts is not None:
            try_once(self._counts.read, "run")

    def read_now_and_then(self) -> None:
        """Read if the last reading is some time ago."""
        if time.monotonic() >= self._again:
            self._again = time.monotonic() + _READ_SECONDS
            self.read()

    def snapshot(self) -> dict[str, int]:
        """Return all counts as of the last reading."""
        found: Mapping[str, int] = {} if self._counts is None else self._counts.groups.get(self._name, {})
        return {name: found.get(name, 0) for name in NAMES}

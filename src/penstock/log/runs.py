"""Runs of engines: who is at work on this log, and how to tell them to stop."""

from __future__ import annotations

from typing import Any

from penstock.errors import InvalidInput
from penstock.log import checking
from penstock.log.transacting import Transacting
from penstock.stores import runs
from penstock.stores.runs import NewRun, RunInfo


class Runs(Transacting):
    """A run is a row: `penstock run` writes it, keeps it alive, obeys it and ends it."""

    def runs(self, *, all: bool = False) -> list[RunInfo]:
        """Runs that are not over, the newest first; with `all` those that are, too (the last thousand).

        One whose process was killed is `lost` once its heartbeat is old.
        """
        return self._run(lambda tx: runs.listed(tx, all=all), write=False)

    def stop_run(self, run: int, *, by: str | None = None) -> RunInfo:
        """Stop a run gracefully, wherever it is: it hears of it with its next heartbeat, within seconds."""
        return self._want(run, "stop", by)

    def quiet_run(self, run: int, *, by: str | None = None) -> RunInfo:
        """Let a run finish what it has claimed, and claim nothing new until `resume_run`."""
        return self._want(run, "quiet", by)

    def resume_run(self, run: int, *, by: str | None = None) -> RunInfo:
        """Let a quiet run go on."""
        return self._want(run, "run", by)

    def _want(self, run: Any, wanted: str, by: str | None) -> RunInfo:
        known = checking.count(run, "run")
        if known >= 2**63:
            raise InvalidInput("run is too large.")
        return self._run(lambda tx: runs.want(tx, known, wanted, by or checking.whoami()))

    # --- for engines ---------------------------------------------------------------------------------------------

    def start_run(self, new: NewRun) -> int:
        """A run begins; returns its id."""
        return self._run(lambda tx: runs.start(tx, new))

    def beat_run(self, run: int) -> str:
        """A run lives; returns what is wanted of it: run, quiet or stop."""
        return self._run(lambda tx: runs.beat(tx, run))

    def end_run(self, run: int, outcome: str) -> None:
        """A run is over."""
        self._run(lambda tx: runs.end(tx, run, outcome))

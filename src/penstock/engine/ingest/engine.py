"""An engine that ingests, and does nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.declare.ingest import Ingest
from penstock.engine.foreground import Orders, run_engine
from penstock.engine.maintenance import Engine
from penstock.engine.outcome import Outcome
from penstock.engine.run_row import running
from penstock.engine.thread_switch import quick_turns
from penstock.log.log import Log


class IngestEngine(Engine):
    """Reads sources until it is stopped, all of them have failed, or, with `until_drained`, none has anything more."""

    def __init__(self, log: Log, ingests: Sequence[Ingest], *, until_drained: bool = False) -> None:
        super().__init__(log, (), until_drained=until_drained)
        self.ingest(ingests)

    def start(self) -> None:
        self._maintain()

    def stop(self) -> None:
        self._stopping.set()

    def quiet(self, quiet: bool) -> None:
        super().quiet(quiet)

    def snapshot(self) -> dict[str, dict[str, int]]:
        return {}

    def _close(self) -> None:
        """Nothing is left open."""


def run_ingest(log: Log, ingests: Sequence[Ingest], *, until_drained: bool = False, app: str | None = None) -> Outcome:
    """Ingest until a signal or an operator stops it, or until drained."""
    orders = Orders()
    with quick_turns(), running(log, "ingest", [one.name for one in ingests], app, orders.obey):
        return run_engine(IngestEngine(log, ingests, until_drained=until_drained), orders)

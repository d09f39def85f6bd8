"""The ingesters of an app: a thread of this process for every source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.core.observe import Observers, everyone
from penstock.declare.ingest import Ingest
from penstock.engine.foreground import Orders, run_engine
from penstock.engine.ingest.counters import NAMES, IngestCounters
from penstock.engine.ingest.ingester import Ingester
from penstock.engine.maintenance import Engine
from penstock.engine.outcome import Outcome
from penstock.engine.run_row import running
from penstock.log.log import Log


class IngestEngine(Engine):
    """Reads sources until it is stopped, all of them have failed, or, with `until_drained`, none has anything more."""

    def __init__(self, log: Log, ingests: Sequence[Ingest], *, until_drained: bool = False) -> None:
        super().__init__(log, (), until_drained=until_drained)
        self.counters = {one.name: IngestCounters() for one in ingests}
        self.ingesters = [
            Ingester(log, one, Observers(self.counters[one.name], parent=everyone), self._stopping) for one in ingests
        ]

    def start(self) -> None:
        for one in self.ingesters:
            self._thread(one.run, f"penstock-{one.name}")
        self._maintain()

    def stop(self) -> None:
        self._stopping.set()

    def quiet(self, quiet: bool) -> None:
        for one in self.ingesters:
            one.quiet(quiet)

    def snapshot(self) -> dict[str, dict[str, int]]:
        return {name: counters.snapshot() for name, counters in self.counters.items()}

    @property
    def paused(self) -> dict[str, str]:
        """Sources that failed, with the reason."""
        return {one.name: one.failure for one in self.ingesters if one.failure is not None}

    def _may_be_drained(self) -> bool:
        return all(one.drained for one in self.ingesters)

    def _close(self) -> None:
        """Nothing is left open."""


@dataclass(frozen=True, slots=True)
class IngestOutcome(Outcome):
    """The counters of every source, and the sources that failed, with the reason."""

    def line(self) -> str:
        """Format it as one line."""
        counts = " ".join(f"{name}={sum(one[name] for one in self.groups.values()):,}" for name in NAMES)
        failed = "".join(f" failed={name} ({why})" for name, why in self.paused.items())
        return f"stopped after {self.seconds:.1f} s: sources={len(self.groups)} {counts}{failed}"

    @property
    def sources(self) -> Mapping[str, Mapping[str, int]]:
        """The counters by source."""
        return self.groups


def run_ingest(
    log: Log, ingests: Sequence[Ingest], *, until_drained: bool = False, app: str | None = None
) -> IngestOutcome:
    """Ingest until a signal or an operator stops it, or until drained."""
    orders = Orders()
    with running(log, "ingest", [one.name for one in ingests], app, orders.obey):
        done = run_engine(IngestEngine(log, ingests, until_drained=until_drained), orders)
    return IngestOutcome(done.groups, done.paused, done.seconds)

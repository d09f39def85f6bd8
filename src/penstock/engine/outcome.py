"""The outcome of a run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.core.limits import PROCESSES
from penstock.engine.counters import total
from penstock.engine.ingest.counters import NAMES as INGESTED
from penstock.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Outcome:
    """The counters of every group and every source, and the groups that ended paused, with the reason."""

    groups: Mapping[str, Mapping[str, int]]
    paused: Mapping[str, str]
    seconds: float = 0.0
    sources: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def line(self) -> str:
        """Format it as one line."""
        counts = " ".join(f"{name}={count:,}" for name, count in total(self.groups.values()).items())
        paused = "".join(f" paused={name} ({why})" for name, why in self.paused.items())
        said = f"groups={len(self.groups)} {counts}"
        if self.sources:
            ingested = _sums(self.sources.values())
            said = f"sources={len(self.sources)} {ingested}" + (f"; {said}" if self.groups else "")
        return f"stopped after {self.seconds:.1f} s: {said}{paused}"


def _sums(counts: Collection[Mapping[str, int]]) -> str:
    return " ".join(f"{name}={sum(one[name] for one in counts):,}" for name in INGESTED)


@dataclass(frozen=True, slots=True)
class PoolOutcome(Outcome):
    """The outcome of all pool processes together; for one that was killed, as of its last report."""

    member_deaths: int = 0

    def line(self) -> str:
        """Format it as one line."""
        return f"{Outcome.line(self)} member_deaths={self.member_deaths:,}"


def check_processes(count: Any) -> int:
    """Return the number if it is within limits; `InvalidInput` otherwise."""
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= PROCESSES:
        raise InvalidInput(f"processes must be a whole number between 1 and {PROCESSES}, not {count!r}.")
    return count

"""How a figure is taken: repeated, compared by turns, and held against its target."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One line of the table."""

    what: str
    value: float
    target: float | None
    at_least: bool = True
    unit: str = "×"
    detail: str = ""

    @property
    def reached(self) -> bool | None:
        if self.target is None:
            return None
        return self.value >= self.target if self.at_least else self.value <= self.target

    @property
    def wanted(self) -> str:
        return "reported" if self.target is None else f"{'≥' if self.at_least else '≤'} {self.target:g} {self.unit}"

    def better(self, other: Figure) -> bool:
        return self.value > other.value if self.at_least else self.value < other.value


@dataclass(frozen=True)
class Line:
    """The same figure of several runs: the median counts, and the worst is told."""

    runs: Sequence[Figure]

    @property
    def median(self) -> Figure:
        """Of two the worse one."""
        ranked = sorted(self.runs, key=lambda one: one.value, reverse=self.runs[0].at_least)
        return ranked[len(ranked) // 2]

    @property
    def worst(self) -> Figure:
        worst = self.runs[0]
        for one in self.runs:
            worst = one if worst.better(one) else worst
        return worst

    def row(self) -> tuple[str, str, str, str, str, str]:
        median, reached = self.median, self.median.reached
        verdict = "" if reached is None else "yes" if reached else "NO"
        measured, worst = (f"{one.value:.3g} {one.unit}" for one in (median, self.worst))
        return median.what, measured, worst, median.wanted, verdict, median.detail


def seconds(work: Callable[[], object]) -> float:
    """How long one call takes; the collector keeps out of it."""
    gc.collect()
    gc.disable()
    try:
        begin = time.perf_counter()
        work()
        return time.perf_counter() - begin
    finally:
        gc.enable()


def best(work: Callable[[], object], times: int = 5) -> float:
    """The best of several calls: noise only ever adds."""
    return min(seconds(work) for _ in range(times))


def in_turn(first: Callable[[], object], second: Callable[[], object], times: int = 5) -> tuple[float, float]:
    """Both, by turns, so that what disturbs one disturbs the other; the best of each."""
    pairs = [(seconds(first), seconds(second)) for _ in range(times)]
    return min(one for one, _ in pairs), min(two for _, two in pairs)


def overall(rates: Sequence[float]) -> float:
    """The rate of runs of the same length, taken together. Where runs take turns, each meets the machine's own ups and
    downs as often as the other; the best of a few would be the luckiest."""
    return len(rates) / sum(1 / rate for rate in rates)

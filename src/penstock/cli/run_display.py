"""What `penstock run` shows on a terminal while it runs: what became of events, how fast, and how many are left."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Group as Stacked
from rich.console import RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from penstock.cli import output
from penstock.cli.run_lines import STOPPING
from penstock.core.delivery import State
from penstock.core.job import name_of
from penstock.core.observe import Observed, RunProgressed, RunStopping, everyone

if TYPE_CHECKING:
    from penstock.engine.drain import Served
    from penstock.log.log import Log

_STATS_SECONDS = 1.0
_RATE_SECONDS = 5.0  # the rate is that of the last so many
_END_SECONDS = 2.0


class Display:
    """A live summary on standard error, if somebody watches; the line about a stop in any case."""

    def __init__(self, watched: bool, log: Log, groups: Sequence[Served], *, starting: str = "starting") -> None:
        self._starting = starting  # what is shown before there is anything to count
        self._names = [one.name for one in groups]
        self._console = output.error_console()
        self._backlog = _Backlog(log)
        self.stopped = False  # before it was done
        self._groups: Mapping[str, Mapping[str, int]] = {}
        self._past: dict[str, deque[tuple[float, int]]] = {name: deque() for name in self._names}
        self._began = time.monotonic()
        self._live: Live | None = None
        if watched:
            self._live = Live(console=self._console, get_renderable=self.render, redirect_stdout=False)

    def __enter__(self) -> Display:
        self._unsubscribe = everyone.subscribe(self)
        if self._live is not None:
            self._backlog.start()
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._unsubscribe()
        if self._live is not None:
            self._backlog.stop()
            self._live.stop()

    def __call__(self, event: Observed) -> None:
        """An observer of the run."""
        if isinstance(event, RunProgressed):
            self._update(event.groups)
        elif isinstance(event, RunStopping):
            self.stopped = True
            self._say_stopping()

    def _update(self, groups: Mapping[str, Mapping[str, int]]) -> None:
        now = time.monotonic()
        self._groups = groups
        for name, past in self._past.items():
            past.append((now, groups[name]["published"]))
            while now - past[0][0] > _RATE_SECONDS:
                past.popleft()

    def _say_stopping(self) -> None:
        if self._live is not None:
            self._live.stop()  # the second signal would leave the terminal without its cursor
        self._console.print(STOPPING, soft_wrap=True)

    # --- looking -------------------------------------------------------------------------------------------------

    def render(self) -> RenderableType:
        """The summary as of now."""
        passed = str(timedelta(seconds=int(time.monotonic() - self._began)))
        if not self._groups:
            return Text(f"{self._starting} … {passed}", style="dim")
        columns = ("group…", "…?", ">published", ">failed", ">dead", ">released?", ">rate?", ">pending")
        table = output.table(columns, [self._row(name) for name in self._names], width=self._console.width)
        return Stacked(table, Text(passed, style="dim"))

    def _row(self, name: str) -> Sequence[RenderableType]:
        counts = self._groups.get(name, {})
        published, dead = counts.get("published", 0), counts.get("dead", 0)
        done, pending = published + dead, self._backlog.of(name)
        return (
            output.cell(name),
            ProgressBar(
                None if pending is None else max(1, done + pending),
                done,
                complete_style="cyan",
                finished_style="green",
            ),
            Text(f"{published:,}", style=output.state_text(State.PUBLISHED).style),
            f"{counts.get('failed', 0):,}",
            Text(f"{dead:,}", style=output.state_text(State.DEAD).style if dead else "dim"),
            f"{counts.get('released', 0):,}",
            f"{self._rate(name):,.0f}/s",
            output.NONE if pending is None else f"{pending:,}",
        )

    def _rate(self, name: str) -> float:
        past = [*self._past[name]]
        if len(past) < 2:
            return 0.0
        (first, before), (last, now) = past[0], past[-1]
        return (now - before) / max(last - first, 1e-6)


class _Backlog:
    """How many deliveries are not finished, asked by a thread of its own: a database that is slow holds up nobody."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._unfinished: dict[str, int] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-stats", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(_END_SECONDS)

    def of(self, name: str) -> int | None:
        """As of the last answer; None before the first."""
        return self._unfinished.get(name)

    def _run(self) -> None:
        self._look()
        while not self._ended.wait(_STATS_SECONDS):
            self._look()
        self._look()  # the picture that stays is not one of a second ago

    def _look(self) -> None:
        with suppress(Exception):  # the workers say so; what was known last is shown on
            found = self._log.stats().groups
            counted: Counter[str] = Counter()
            for one in found:
                job = name_of(one.stream)
                name = f"{one.stream}/{one.group}" if job is None else f"jobs:{job.queue}:{job.type}"
                counted[name] += one.pending + one.claimed
            self._unfinished = dict(counted)

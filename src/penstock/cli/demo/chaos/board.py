"""The scoreboard: what the database says, drawn for a terminal of any width, or as a line for a pipe."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.cli.demo.chaos.scores import GroupScore, Score, Scores
from penstock.cli.demo.chaos.trouble import LINES, Happening, Trouble
from penstock.cli.sparkline import sparkline

_LINE_SECONDS: Final = 5.0
_SHOWN: Final = 6  # of the last troubles
_NARROW, _WIDE = 14, 44
_SIGNS = {"☠": "red", "⚡": "bold yellow", "❄": "cyan", "✂": "magenta", "♥": "bold green", "!": "bold red"}
_PARTS = (("published", "green", "█"), ("dead", "red", "█"), ("claimed", "cyan", "▓"), ("pending", "yellow", "░"))


class Board:
    """Shows the scores until the block ends: live on a terminal, a line now and then elsewhere, or not at all."""

    def __init__(self, console: Console, scores: Scores, trouble: Trouble, seconds: float, *, silent: bool) -> None:
        self._console, self._scores, self._trouble = console, scores, trouble
        self._seconds = seconds
        self._began = time.monotonic()
        self._next_line = self._began + _LINE_SECONDS
        self._said = 0  # troubles that were printed as lines
        self.phase = "starting"
        self._live: Live | None = None
        self._silent = silent
        if console.is_terminal and not silent:
            self._live = Live(console=console, get_renderable=self.render, refresh_per_second=8)

    def __enter__(self) -> Board:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
        else:
            self._print_lines(time.monotonic())

    def begin(self) -> None:
        """Start the clock."""
        self.phase, self._began = "chaos", time.monotonic()
        self._next_line = self._began + _LINE_SECONDS

    def tick(self) -> None:
        """Print what is new, where nothing is live."""
        now = time.monotonic()
        if self._live is None and now >= self._next_line:
            self._next_line = now + _LINE_SECONDS
            self._print_lines(now)

    def _print_lines(self, now: float) -> None:
        if self._silent:
            return
        for one in self._trouble.happened[self._said :]:
            self._console.print(_happening(one), soft_wrap=True)
        self._said = len(self._trouble.happened)
        self._console.print(f"{now - self._began:5.0f} s    {summary(self._scores.last)}", soft_wrap=True)

    # --- drawing -------------------------------------------------------------------------------------------------

    def render(self) -> RenderableType:
        """The board as of now."""
        score, width = self._scores.last, self._console.width
        bar = max(_NARROW, min(_WIDE, width - 42))
        table = Table.grid(padding=(0, 1))
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
        table.add_column(no_wrap=True)
        spark = max(6, min(30, width - bar - 24))
        for name, one in score.groups.items():
            rates = [
                now.groups[name].published - old.groups[name].published for old, now in pairwise(self._scores.seen)
            ]
            done = Text(f"{one.published + one.dead:,}", "bold")
            table.add_row(Text(name, "bold"), stacked_bar(one, bar), done, Text(sparkline(rates[-spark:]), "green"))
        return Group(
            Text(),
            self._headline(width),
            Text(),
            table,
            Text(),
            self._numbers(score),
            Text(),
            self._kills(),
            Text(),
            *map(_happening, self._trouble.happened[-_SHOWN:]),
        )

    def _headline(self, width: int) -> Text:
        passed = 0.0 if self.phase == "starting" else min(time.monotonic() - self._began, self._seconds)
        database = ("● database up", "green") if self._scores.up else ("○ database DOWN", "bold red")
        phase = (self.phase, "bold red" if self.phase == "chaos" else "bold green")
        clock = f" {passed:.0f}/{self._seconds:.0f} s "
        room = max(8, min(_WIDE, width - 34))
        filled = round(room * passed / self._seconds)
        return Text.assemble(phase, clock, ("━" * filled, "red"), ("━" * (room - filled), "dim"), "  ", database)

    def _numbers(self, score: Score) -> RenderableType:
        return _facts(
            ("orders", score.orders, "bold"),
            ("events", score.events, "bold"),
            ("effects", score.sum("distinct"), "bold"),
            ("waiting", score.sum("unfinished"), "yellow"),
            ("dead", score.sum("dead"), "red"),
            ("retaken", score.taken_back, "cyan"),  # leases
            ("doubled", score.doubled, "bold red" if score.doubled else "bold green"),
            ("lost", score.lost, "bold red" if score.lost else "bold green"),
        )

    def _kills(self) -> RenderableType:
        counts = self._trouble.counts
        return _facts(*((words, counts[kind], "bold red") for kind, words in LINES.items()))


def _facts(*facts: tuple[str, int, str]) -> RenderableType:
    """Names above their numbers."""
    table = Table.grid(padding=(0, 1))
    for _ in facts:
        table.add_column(justify="right", no_wrap=True)
    table.add_row(*(Text(name, "dim") for name, _, _ in facts))
    table.add_row(*(Text(f"{count:,}", style if count or "green" in style else "dim") for _, count, style in facts))
    return table


def stacked_bar(one: GroupScore, width: int) -> Text:
    """A bar of a group's deliveries by state; whatever exists gets at least one cell."""
    counts = [int(getattr(one, name)) for name, _, _ in _PARTS]
    total = sum(counts)
    if not total:
        return Text("░" * width, "dim")
    cells = [max(1, width * count // total) if count else 0 for count in counts]
    widest = cells.index(max(cells))
    cells[widest] += width - sum(cells)
    return Text.assemble(*((sign * count, style) for (_, style, sign), count in zip(_PARTS, cells, strict=True)))


def _happening(one: Happening) -> Text:
    style = _SIGNS[one.sign]
    return Text.assemble((f"{one.seconds:5.1f} s", "dim"), "  ", (f"{one.sign} {one.words}", style))


def summary(score: Score) -> str:
    """The score in a line."""
    return (
        f"orders {score.orders:,} · effects {score.sum('distinct'):,} · waiting {score.sum('unfinished'):,} · "
        f"dead {score.sum('dead'):,} · doubled {score.doubled:,} · lost {score.lost:,}"
    )

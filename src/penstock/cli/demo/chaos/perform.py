"""The performance: chaos, healing, the proof, and what is printed about it."""

from __future__ import annotations

import itertools
import logging
import signal
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

import typer
from rich.console import Console
from rich.text import Text

import penstock
from penstock.cli import output
from penstock.cli.demo import checks
from penstock.cli.demo.chaos.arena import Arena, arena
from penstock.cli.demo.chaos.board import Board, summary
from penstock.cli.demo.chaos.crew import Crew
from penstock.cli.demo.chaos.proof import prove
from penstock.cli.demo.chaos.scores import Score, Scores, look
from penstock.cli.demo.chaos.shop import GROUPS, TABLES
from penstock.cli.demo.chaos.trouble import Trouble
from penstock.cli.demo.checks import Check
from penstock.cli.demo.database import connect
from penstock.cli.failures import FAILED, INTERRUPTED
from penstock.cli.session import Session
from penstock.log.log import Log

_STREAM: Final = "chaos-orders"
_WORKERS, _PRODUCERS = 3, 2
_TICK_SECONDS: Final = 0.05
_WARM_UP_SECONDS: Final = 30.0
_DRAIN_SECONDS: Final = 90.0


@dataclass(frozen=True, slots=True)
class Told:
    """What came of it."""

    stream: str
    seed: int
    seconds: float
    score: Score
    troubles: dict[str, int]
    ended_by_themselves: int
    checks: list[Check]

    @property
    def passed(self) -> bool:
        return self.score.orders > 0 and all(one.passed for one in self.checks)

    def document(self) -> dict[str, object]:
        return {
            "stream": self.stream,
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
            "orders": self.score.orders,
            "effects": self.score.sum("distinct"),
            "dead": self.score.sum("dead"),
            "doubled": self.score.doubled,
            "lost": self.score.lost,
            "leases_taken_back": self.score.taken_back,
            "troubles": self.troubles,
            "ended_by_themselves": self.ended_by_themselves,
            "passed": self.passed,
            "checks": [{**asdict(one), "passed": one.passed} for one in self.checks],
        }


def perform(session: Session, seconds: float, seed: int) -> None:
    """Let it happen; it fails if anything was lost, doubled or out of order."""
    console = Console(quiet=True) if session.as_json else output.console()
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # it would report every connection that is cut
    try:
        with _Signals() as signals, tempfile.TemporaryDirectory(prefix="penstock-chaos-") as name:
            told = _play(session, console, Path(name), seconds, seed, signals)
    except KeyboardInterrupt:
        output.error_console().print("stopped: every process is ended, and everything temporary is removed")
        raise typer.Exit(INTERRUPTED) from None
    if session.as_json:
        output.write_json(told.document())
    else:
        _farewell(console, told)
    if not told.passed:
        raise typer.Exit(FAILED)


class _Signals:
    """Ctrl-C and SIGTERM end the play at its next tick, when no process is just being started; a second one at once."""

    def __init__(self) -> None:
        self._came = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> _Signals:
        self._before = {one: signal.signal(one, self._come) for one in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for one, handler in self._before.items():
            signal.signal(one, handler)

    def _come(self, number: int, frame: FrameType | None) -> None:
        if self._came:
            raise KeyboardInterrupt
        self._came = True

    def pause(self, seconds: float) -> None:
        """Sleep until the next tick."""
        if self._came:
            raise KeyboardInterrupt
        time.sleep(seconds)


def _play(session: Session, console: Console, directory: Path, seconds: float, seed: int, signals: _Signals) -> Told:
    began = time.monotonic()
    with arena(session.named_url, directory) as place, penstock.open(place.watch_url) as log:
        stream = _prepare(log)
        _introduce(console, place, stream, seed)
        with Crew(directory, place.url, stream, seed, _WORKERS, _PRODUCERS) as crew:
            trouble = Trouble(place, crew, seed, seconds)
            crew.fill([*crew.workers, *crew.producers])
            silent = session.as_json or session.quiet
            with Scores(log, stream) as scores, Board(console, scores, trouble, seconds, silent=silent) as board:
                _warm_up(crew, scores, signals)
                _rage(trouble, board, seconds, signals)
                trouble.end()
                crew.stop(crew.producers)
                board.phase = "healing"
                _drain(log, stream, crew, scores, board, signals)
        return _verdict(log, stream, seed, console, crew, trouble, began)


def _prepare(log: Log) -> str:
    """Make the shop's tables; returns a stream that is not there yet."""
    taken = {*log.streams()}
    names = itertools.chain([_STREAM], (f"{_STREAM}-{number}" for number in itertools.count(2)))
    with connect(log, TABLES[log.store.kind]):
        return next(name for name in names if name not in taken)


def _introduce(console: Console, place: Arena, stream: str, seed: int) -> None:
    console.print(Text.assemble(("Penstock", "bold"), ": a shop goes on selling while everything around it is killed"))
    for line in (
        f"   {_PRODUCERS} producers commit orders and their events in one transaction, to {place.place}.",
        f"   {_WORKERS} workers serve the groups {', '.join(GROUPS)} of {stream}. The seed is {seed}.",
    ):
        console.print(Text(line))


def _warm_up(crew: Crew, scores: Scores, signals: _Signals) -> None:
    """Wait until everybody is at work: whoever is killed while it starts is only half a victim."""
    until = time.monotonic() + _WARM_UP_SECONDS
    while time.monotonic() < until and not (all(crew.acknowledged()) and scores.last.busy):
        signals.pause(_TICK_SECONDS)


def _rage(trouble: Trouble, board: Board, seconds: float, signals: _Signals) -> None:
    trouble.begin()
    board.begin()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        trouble.tick()
        board.tick()
        signals.pause(_TICK_SECONDS)


def _drain(log: Log, stream: str, crew: Crew, scores: Scores, board: Board, signals: _Signals) -> None:
    """Wait until everything is done; a group that the crash-loop guard has paused is resumed, as a person would."""
    began = time.monotonic()
    while time.monotonic() < began + _DRAIN_SECONDS:
        if scores.last.at > began and scores.last.drained:
            return
        crew.fill(crew.workers)
        for one in log.groups(stream):
            if one.paused:
                log.resume(stream, one.group_name)
        board.tick()
        signals.pause(_TICK_SECONDS * 4)


def _verdict(log: Log, stream: str, seed: int, console: Console, crew: Crew, trouble: Trouble, began: float) -> Told:
    console.print(Text("\nThe proof, in plain SQL over the shop's tables and the log's", style="bold"))
    with connect(log, ()) as database:
        score = look(database, stream)
        found = prove(database, stream, crew.acknowledged())
    for one in found:
        checks.show(console, one)
    lost = sum(one.lost for one in [*crew.workers, *crew.producers])
    return Told(stream, seed, time.monotonic() - began, score, dict(trouble.counts), lost, found)


def _farewell(console: Console, told: Told) -> None:
    killed = sum(told.troubles.values())
    console.print(Text(f"\n{killed} troubles in {told.seconds:.0f} s: {summary(told.score)}"))
    if told.ended_by_themselves:
        said = f"{told.ended_by_themselves} processes ended by themselves and were replaced."
        console.print(Text(said, style="yellow"))
    if told.passed:
        line = "Nothing was lost, no effect happened twice, and every key kept its order."
        console.print(Text(line, style="bold green"))
        return
    failed = [one.what for one in told.checks if not one.passed]
    console.print(Text(f"{len(failed)} of {len(told.checks)} checks FAILED:", style="bold red"))
    for what in failed:
        console.print(Text(f"   {what}"))
    again = f"This is a defect of Penstock. Please report it, with the seed {told.seed}."
    console.print(Text(again, style="bold red"))

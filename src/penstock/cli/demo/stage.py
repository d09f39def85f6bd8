"""Where the demo's story happens, what it prints at the end, and how it exits."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import typer
from rich.console import Console
from rich.text import Text

import penstock
from penstock.cli import output
from penstock.cli.demo import database
from penstock.cli.demo.checks import Check
from penstock.cli.demo.engines import Engine, OnSpark, OnThisMachine
from penstock.cli.demo.next_steps import next_steps
from penstock.cli.demo.story import Story
from penstock.cli.failures import FAILED
from penstock.cli.run import own_output
from penstock.cli.session import Session
from penstock.log.log import Log

_STREAM = "demo-orders"


@dataclass(frozen=True, slots=True)
class _Told:
    """What came of it."""

    stream: str
    engine: str
    orders: int
    dead: tuple[int, ...]  # offsets
    redriven: int
    seconds: float
    checks: list[Check]

    @property
    def passed(self) -> bool:
        return all(one.passed for one in self.checks)

    def document(self) -> dict[str, object]:
        checks = [{**asdict(one), "passed": one.passed} for one in self.checks]
        counts = {"orders": self.orders, "dead": len(self.dead), "redriven": self.redriven}
        return {
            "stream": self.stream,
            "engine": self.engine,
            **counts,
            "seconds": round(self.seconds, 3),
            "passed": self.passed,
            "checks": checks,
        }


def perform(session: Session, engine: str, count: int) -> None:
    """Tell the story with this engine and so many orders; it fails if a check does."""
    console = Console(quiet=True) if session.as_json else output.console()
    with own_output(session), tempfile.TemporaryDirectory(prefix="penstock-demo-", ignore_cleanup_errors=True) as name:
        told = _tell(session, engine, count, console, Path(name))
    if session.as_json:
        output.write_json(told.document())
    else:
        _farewell(console, told, session)
    if not told.passed:
        raise typer.Exit(FAILED)


def _tell(session: Session, engine: str, count: int, console: Console, directory: Path) -> _Told:
    began = time.monotonic()
    url = session.named_url or f"sqlite:///{directory / 'shop.db'}"
    with penstock.open(url) as log, _engine(engine, directory) as runner, database.connect(log) as shop:
        stream = _free_name(log)
        story = Story(log, shop, runner, console, stream=stream, count=count, watched=session.progress_wanted())
        story.begin(kept=session.named_url is not None)
        story.write_orders()
        story.introduce_groups()
        story.wait_for_engine()
        story.run(mended=False)
        if runner.pipelines:
            story.show_hours()
        dead = story.show_dead()
        redriven = story.mend_and_redrive()
        story.run(mended=True)
        story.check()
    offsets = tuple(one.offset for one in dead)
    return _Told(stream, engine, count, offsets, redriven, time.monotonic() - began, story.checks)


@contextmanager
def _engine(name: str, directory: Path) -> Iterator[Engine]:
    made: Engine = OnSpark(directory) if name == "spark" else OnThisMachine()
    try:
        yield made
    finally:
        made.close()


def _free_name(log: Log) -> str:
    """A stream that is not there yet: the story can be told again in the same database."""
    taken = {*log.streams()}
    names = itertools.chain([_STREAM], (f"{_STREAM}-{number}" for number in itertools.count(2)))
    return next(name for name in names if name not in taken)


def _farewell(console: Console, told: _Told, session: Session) -> None:
    if not told.passed:
        failed = [one.what for one in told.checks if not one.passed]
        console.print(Text(f"\n{len(failed)} of {len(told.checks)} checks FAILED:", style="bold red"))
        _lines(console, failed)
        console.print(Text("This is a defect of Penstock. Please report it.", style="bold red"))
        return
    said = f"\nNothing was lost, and every effect happened once. ({told.seconds:.0f} s)"
    console.print(Text(said, style="bold green"))
    console.print("What to try next:")
    _lines(console, next_steps(told.stream, told.dead, session.named_url, told.engine))


def _lines(console: Console, lines: Sequence[str]) -> None:
    for line in lines:
        console.print(Text(f"   {line}"), soft_wrap=True)

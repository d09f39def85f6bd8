"""The story that the demo tells, one chapter to a method."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import typer
from rich.console import Console
from rich.padding import Padding
from rich.progress import track
from rich.text import Text

from penstock.cli import records
from penstock.cli.demo import checks, orders, shop
from penstock.cli.demo.checks import Check
from penstock.cli.demo.database import Database
from penstock.cli.demo.engines import Engine
from penstock.cli.failures import INTERRUPTED
from penstock.cli.inspect import dead_letters
from penstock.cli.operate import moved_line
from penstock.cli.run_display import Display
from penstock.cli.sparkline import sparkline
from penstock.log.deliveries import DeliveryRecord
from penstock.log.log import Log

_TRANSACTION = 100  # orders in one business transaction
_CHANGED_MIND = 20  # every so many transactions one is rolled back


class Story:
    """Told to a console; nothing in it is prepared, all of it happens."""

    def __init__(
        self, log: Log, database: Database, engine: Engine, console: Console, *, stream: str, count: int, watched: bool
    ) -> None:
        self.log = log
        self.database = database
        self.engine = engine
        self.console = console
        self.stream = stream
        self.orders = list(orders.make(count))
        self.watched = watched
        self.checks: list[Check] = []

    def chapter(self, title: str) -> None:
        self.console.print(Text(f"\n{title}", style="bold"))

    def say(self, *lines: str) -> None:
        for line in lines:
            self.console.print(Padding(Text(line), (0, 0, 0, 3), expand=False))

    def command(self, line: str) -> None:
        """What somebody would have typed for what happens."""
        self.console.print(Text(f"   $ {line}", style="cyan"), soft_wrap=True)

    def begin(self, kept: bool) -> None:
        """What it is about, and where it happens."""
        self.console.print(
            Text.assemble(("Penstock", "bold"), ": a shop's orders, and what becomes of each until it is done")
        )
        self.say(f"The log lives in {'the database you named' if kept else 'an SQLite file in a temporary directory'}.")
        if self.engine.pipelines:
            self.say("Spark starts in the background, which takes some seconds.")

    # --- 1: the outbox -------------------------------------------------------------------------------------------

    def write_orders(self) -> None:
        """Each order and its event commit together, or neither does."""
        self.chapter("1  The outbox: an order and its event commit in one transaction of the shop's own")
        given_up = 0
        for number, batch in enumerate(self._batches()):
            self._write(batch)
            if number % _CHANGED_MIND == 0:
                self._write(batch[:1], keep=False)
                given_up += 1
        self.say(
            f"{len(self.orders):,} orders and their events committed. {given_up} transactions were rolled back: they "
            f"left neither an order nor an event.",
        )

    def _batches(self) -> Iterator[list[orders.Order]]:
        """The orders of each transaction, with a bar that shows how many are written."""
        firsts = range(0, len(self.orders), _TRANSACTION)
        silent = not self.console.is_terminal
        for first in track(firsts, "   writing", console=self.console, disable=silent, transient=True):
            yield self.orders[first : first + _TRANSACTION]

    def _write(self, batch: list[orders.Order], *, keep: bool = True) -> None:
        with self.database.transaction() as undo:
            for one in batch:
                new = one if keep else replace(one, id=one.id + len(self.orders))
                self.database.add_order(self.stream, new)
                self.log.append(
                    self.stream,
                    new.event(),
                    type="order.created",
                    ordering_key=new.customer,
                    connection=self.database.connection,
                )
            if not keep:
                undo()

    # --- 2: the groups ---------------------------------------------------------------------------------------------

    def introduce_groups(self) -> None:
        where = "on Spark" if self.engine.pipelines else "in plain processes"
        self.chapter(f"2  Groups {where}: each has a lifecycle of its own for every event")
        self.say(
            "screening  a fraud check with three bugs: 8 orders make it raise, 3 kill its process, 1 hangs it",
            "revenue    a running total per customer, in order; tells once when a customer turns gold",
        )
        if self.engine.pipelines:
            self.say("windows    a Spark DataFrame: revenue per hour, into a table")

    def wait_for_engine(self) -> None:
        if not self.engine.pipelines:
            return
        with self.console.status(Text("waiting for Spark to start")):
            self.engine.ready()

    def run(self, *, mended: bool) -> None:
        """Run the app until nothing is left to do."""
        app = shop.app(self.log.store.url, self.stream, mended=mended, pipelines=self.engine.pipelines)
        with Display(self.watched, self.log, [*app.chosen(), *app.chosen_pipelines()]) as display:
            self.engine.drain(self.log, app)
        if display.stopped:
            raise typer.Exit(INTERRUPTED)
        if not self.watched:
            self._show_stats()

    def _show_stats(self) -> None:
        found = self.log.stats()
        streams = tuple(one for one in found.streams if one.stream == self.stream)
        groups = tuple(one for one in found.groups if one.stream == self.stream)
        self.console.print(records.stats_tables(replace(found, streams=streams, groups=groups)))

    def show_hours(self) -> None:
        """The table that the pipeline wrote, as a picture."""
        hours = self.database.hours(self.stream)
        most = max((cents for _, _, cents in hours), default=1)
        bars = sparkline([cents for _, _, cents in hours])
        self.say(f"revenue per hour, from the table of windows:  {bars}  (up to {most // 100:,} €)")

    # --- 3 and 4: what went wrong, and how it is mended --------------------------------------------------------------

    def show_dead(self) -> list[DeliveryRecord]:
        self.chapter("3  The dead letters: a query, not another queue")
        self.command(f"penstock dead {self.stream} {shop.SCREENING}")
        dead = dead_letters(self.log, self.stream, shop.SCREENING)
        self.console.print(records.delivery_table(dead))
        self._show(checks.of_the_dead(self.database, self.stream))
        return dead

    def mend_and_redrive(self) -> int:
        self.chapter("4  The fix: deploy version 2, and give them another life")
        self.command(f"penstock redrive {self.stream} {shop.SCREENING} --all --yes")
        moved = self.log.redrive(self.stream, shop.SCREENING, all=True, by="demo")
        self.console.print(moved_line(self.stream, shop.SCREENING, moved.count, "PENDING by redrive"))
        self.say("They start over, with all their attempts.")
        return moved.count

    # --- 5: the proof ------------------------------------------------------------------------------------------------

    def check(self) -> None:
        self.chapter("5  The proof: plain SQL over the shop's tables and the log's")
        groups = [shop.SCREENING, shop.REVENUE, *([shop.WINDOWS] if self.engine.pipelines else [])]
        golden = sum(cents >= shop.GOLD_CENTS for cents in orders.totals(self.orders).values())
        found = checks.at_the_end(
            self.database, self.stream, groups, len(self.orders), golden, windows=self.engine.pipelines
        )
        for one in found:
            self._show(one)

    def _show(self, one: Check) -> None:
        self.checks.append(one)
        checks.show(self.console, one)

"""`penstock demo`: orders, two groups, a bug, dead letters, a redrive, and a check that nothing was lost."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

import penstock
from penstock.cli import demo_database, output, records
from penstock.cli.command import START, command, root
from penstock.cli.demo_database import Check, Database
from penstock.cli.failures import FAILED
from penstock.cli.session import Session
from penstock.core.retry import Retry
from penstock.log.ids import uuid7
from penstock.log.lease import Lease
from penstock.log.log import Log
from penstock.stores.inspect import DeliveryRecord

ORDERS = 2_000
CUSTOMERS = 40
POISON_EVERY = 200
BATCH = 100
_TRANSACTION = 250  # orders in one business transaction


class Demo:
    """The story, one chapter to a method."""

    def __init__(self, log: Log, database: Database, console: Console) -> None:
        self.log = log
        self.database = database
        self.say = console.print
        self.console = console
        self.run = uuid7().hex[-8:]  # so that it can be told again in the same database
        self.stream = f"demo-orders-{self.run}"
        self.mended = False

    def chapter(self, title: str) -> None:
        self.say(Text(f"\n{title}", style="bold"))

    # --- 1: the outbox -------------------------------------------------------------------------------------------

    def write_orders(self) -> None:
        """Each order and its event commit together; one transaction changes its mind, and leaves neither."""
        self.chapter(f"1  {ORDERS:,} orders, each in one transaction with its event (the outbox)")
        for first in range(1, ORDERS + 1, _TRANSACTION):
            with self.database.transaction():
                for number in range(first, first + _TRANSACTION):
                    self._write(number)
        with self.database.transaction() as undo:
            self._write(ORDERS + 1)
            undo()
        self.say(f"   committed {ORDERS:,}; one order was rolled back, and its event with it")

    def _write(self, number: int) -> None:
        customer, cents = f"customer-{number % CUSTOMERS:02}", 100 + number * 37 % 9_900
        self.database.add_order(self.run, number, customer, cents)
        country = None if number % POISON_EVERY == 0 else "de"
        payload = {"id": number, "cents": cents, "country": country}
        self.log.append(
            self.stream,
            payload,
            type="order.created",
            ordering_key=customer,
            connection=self.database.connection,
        )

    # --- 2: two groups -------------------------------------------------------------------------------------------

    def create_groups(self) -> None:
        self.chapter("2  Two groups, each with its own lifecycle for every event")
        self.log.create_group(self.stream, "fraud", retry=Retry(max_attempts=2, base_seconds=0))
        self.log.create_group(self.stream, "ledger", ordering="key")
        self.say("   fraud   unordered, two attempts; its code trips over an order without a country, one in 200")
        self.say("   ledger  in the order of each customer, with a total per customer as keyed state")

    def work(self) -> None:
        """Claim, handle, settle, until nothing is due."""
        handlers: dict[str, Callable[[Lease], None]] = {"fraud": self._screen, "ledger": self._book}
        columns = (TextColumn("   {task.description:<7}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, console=self.console, disable=not self.console.is_terminal) as progress:
            tasks = {group: progress.add_task(group, total=ORDERS) for group in handlers}
            waiting = set(handlers)
            while waiting:
                for group in sorted(waiting):
                    lease = self.log.claim(self.stream, group, limit=BATCH, claimed_by="demo")
                    if lease is None:
                        waiting.discard(group)
                        continue
                    handlers[group](lease)
                    progress.advance(tasks[group], len(lease))
                for group, task in tasks.items():
                    if group not in waiting:
                        progress.update(task, completed=ORDERS)

    def _screen(self, lease: Lease) -> None:
        """The fraud check: a score per order, written in the settle, so it is there once or not at all."""
        failed: dict[Any, Exception] = {}
        scores: list[tuple[str, tuple[Any, ...]]] = []
        for event in lease.events:
            order = event.json()
            try:
                country = (order["country"] or "xx") if self.mended else order["country"]
                score = order["cents"] // 100 + len(country.upper())
                scores.append((demo_database.ADD_SCORE, (self.run, order["id"], score)))
            except AttributeError as error:  # 'NoneType' object has no attribute 'upper'
                failed[event.event_id] = error
        lease.settle(failed=failed, execute=scores)

    def _book(self, lease: Lease) -> None:
        """The ledger: reads and writes the totals of its keys in the lease that owns them."""
        totals = lease.state()
        changed: dict[str, dict[str, Any]] = {}
        for event in lease.events:
            key = str(event.ordering_key)
            before = changed.get(key) or totals.get(key, {})
            changed[key] = {
                "cents": before.get("cents", 0) + event.json()["cents"],
                "orders": before.get("orders", 0) + 1,
            }
        lease.settle(state=changed)

    # --- 3 to 5: what went wrong, and how it is mended ---------------------------------------------------------------

    def show_stats(self) -> None:
        found = self.log.stats()
        streams = tuple(one for one in found.streams if one.stream == self.stream)
        groups = tuple(one for one in found.groups if one.stream == self.stream)
        self.say(records.stats_tables(replace(found, streams=streams, groups=groups)))

    def show_dead(self) -> list[DeliveryRecord]:
        self.chapter("3  The dead letters: a query, not another queue")
        dead = self.log.deliveries(self.stream, "fraud", state="DEAD")
        rows = [
            (str(one.offset), output.payload_text(one, 40), f"{one.failures}", output.cell(one.last_error))
            for one in dead
        ]
        self.say(output.table((">offset", "payload", ">failures", "error…"), rows))
        return dead

    def mend_and_redrive(self) -> int:
        self.chapter("4  Fix the bug, then give them another life")
        self.mended = True
        moved = self.log.redrive(self.stream, "fraud", error="AttributeError", by="demo")
        self.say(f'   log.redrive("{self.stream}", "fraud", error="AttributeError") → {moved.count} deliveries')
        return moved.count

    def check(self) -> list[Check]:
        self.chapter("5  The proof, in plain SQL")
        checks = self.database.checks(self.run, self.stream, ORDERS)
        for one in checks:
            mark, style = ("✓", "green") if one.passed else ("✗", "bold red")
            self.say(Text.assemble(("   " + mark, style), f" {one.what}: {one.found}"))
            self.say(Text(f"     {one.sql}", style="dim"))
        return checks


@command(root, "demo", panel=START, example="penstock demo")
def demo(session: Session) -> None:
    """See it work: outbox, two groups, a bug, dead letters, a redrive, and the proof. Takes a few seconds."""
    console = Console(quiet=True) if session.as_json else output.console()
    with ExitStack() as closing:
        url = session.named_url
        if url is None:
            directory = closing.enter_context(tempfile.TemporaryDirectory(prefix="penstock-demo-"))
            url = f"sqlite:///{Path(directory) / 'shop.db'}"
        log = closing.enter_context(penstock.open(url))
        told = Demo(log, closing.enter_context(demo_database.connect(log, url)), console)
        told.write_orders()
        told.create_groups()
        told.work()
        told.show_stats()
        dead = told.show_dead()
        redriven = told.mend_and_redrive()
        told.work()
        told.show_stats()
        checks = told.check()
    good = all(one.passed for one in checks)
    if session.as_json:
        document = {"stream": told.stream, "orders": ORDERS, "dead": len(dead), "redriven": redriven}
        output.write_json(
            {**document, "passed": good, "checks": [{**asdict(one), "passed": one.passed} for one in checks]}
        )
    else:
        _farewell(console, good)
    if not good:
        raise typer.Exit(FAILED)


def _farewell(console: Console, good: bool) -> None:
    if not good:
        console.print(Text("\nA check failed: this is a defect of Penstock. Please report it.", style="bold red"))
        return
    console.print(Text("\nNothing was lost, and every effect happened once.", style="bold green"))
    console.print("What to try next, in a log of your own:")
    console.print("   penstock append orders --type order.created --payload '{\"id\": 1}'")
    console.print("   penstock group create orders fraud && penstock stats")
    console.print("   penstock doctor")

"""The proof: plain SQL over the shop's tables and the log's, and what it has to answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from inspect import cleandoc
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from penstock.cli.demo.database import Database
from penstock.cli.demo.orders import POISONED
from penstock.cli.demo.shop import GOLD_CENTS, SCREENING, gold

Rows = tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, slots=True)
class Check:
    """A statement, what it should say, and what it said."""

    what: str
    sql: str
    wanted: str
    found: str

    @property
    def passed(self) -> bool:
        return self.wanted == self.found


@dataclass(frozen=True, slots=True)
class _Question:
    what: str
    sql: str
    params: tuple[str, ...]
    wanted: Rows


def of_the_dead(database: Database, stream: str) -> Check:
    """Who was given up: the troublesome orders, by the one group that could not bear them."""
    sql = """
        select group_name, count(*) from penstock.delivery
         where stream = ? and state = 'DEAD' group by group_name
        """
    return _asked(database, _Question("orders given up, by group", sql, (stream,), ((SCREENING, POISONED),)))


def at_the_end(
    database: Database, stream: str, groups: Sequence[str], orders: int, golden: int, *, windows: bool
) -> list[Check]:
    """Nothing lost, nothing twice, all sums right."""
    questions = _lifecycle(stream, groups, orders) + _effects(stream, orders, golden)
    return [_asked(database, one) for one in questions + (_windows(stream) if windows else [])]


def asked(database: Database, what: str, sql: str, params: Sequence[str], wanted: Rows | None = None) -> Check:
    """Ask; unless something is `wanted`, the answer should be two numbers that are the same, or 0."""
    found = tuple(tuple(row) for row in database.execute(sql, params).fetchall())
    if wanted is None:
        wanted = tuple((max(row),) * len(row) if len(row) > 1 else (0,) for row in found)
    shown = database.translate(cleandoc(sql)).replace("%s", "?")
    for value in params:  # names of streams: letters, digits and dots
        shown = shown.replace("?", f"'{value}'", 1)
    return Check(what, shown, _said(wanted), _said(found))


def _asked(database: Database, one: _Question) -> Check:
    return asked(database, one.what, one.sql, one.params, one.wanted)


def show(console: Console, one: Check) -> None:
    """Print a check: what it is about, what was found, and the statement to ask it again."""
    mark, style = ("✓", "green") if one.passed else ("✗", "bold red")
    said = Text.assemble((mark, style), f" {one.what}: ", (one.found, "bold"))
    console.print(Padding(said, (0, 0, 0, 3), expand=False))
    if not one.passed:
        console.print(Text(f"     it should have been {one.wanted}", style="bold red"))
    console.print(Padding(Text(one.sql, style="dim"), (0, 0, 0, 5), expand=False))


def _said(rows: Rows) -> str:
    return ", ".join(_row(*row) for row in rows)


def _row(*values: Any) -> str:
    """A name and numbers that should be the same."""
    names = [one for one in values if isinstance(one, str)]
    return " ".join([*names, " = ".join(f"{one:,}" for one in values if not isinstance(one, str))])


def _lifecycle(stream: str, groups: Sequence[str], orders: int) -> list[_Question]:
    return [
        _Question(
            "orders in the shop's table = events in the log",
            """
            select (select count(*) from demo_orders where stream = ?),
                   (select count(*) from penstock.events where stream = ?)
            """,
            (stream, stream),
            ((orders, orders),),
        ),
        _Question(
            "PUBLISHED deliveries = distinct events, for each group",
            """
            select group_name, count(*), count(distinct event_id) from penstock.delivery
             where stream = ? and state = 'PUBLISHED' group by group_name order by group_name
            """,
            (stream,),
            tuple((group, orders, orders) for group in sorted(groups)),
        ),
        _Question(
            "deliveries in any other state",
            "select count(*) from penstock.delivery where stream = ? and state <> 'PUBLISHED'",
            (stream,),
            ((0,),),
        ),
    ]


def _effects(stream: str, orders: int, golden: int) -> list[_Question]:
    return [
        _Question(
            "scores written = orders scored",
            "select count(*), count(distinct order_id) from demo_scores where stream = ?",
            (stream,),
            ((orders, orders),),
        ),
        _Question(
            "customers whose total in the state is not the sum of their orders",
            """
            select count(*) from (
              select customer from (
                select customer, cents from demo_orders where stream = ?
                union all
                select key, -cast(value as bigint)
                  from penstock.state join penstock.groups using (group_id)
                 where stream = ? and group_name = 'revenue' and name = 'cents'
              ) moves group by customer having sum(cents) <> 0) wrong
            """,
            (stream, stream),
            ((0,),),
        ),
        _Question(
            f"customer.gold events = customers from {GOLD_CENTS // 100:,} € on",
            f"""
            select (select count(*) from penstock.events where stream = ?),
                   (select count(*) from (select customer from demo_orders where stream = ?
                                           group by customer having sum(cents) >= {GOLD_CENTS}) gold)
            """,
            (gold(stream), stream),
            ((golden, golden),),
        ),
    ]


def _windows(stream: str) -> list[_Question]:
    return [
        _Question(
            "hours in which the windowed table differs from a GROUP BY over the orders",
            """
            select count(*) from (
              select begins from (
                select begins, orders, cents from demo_windows where stream = ?
                union all
                select placed_at / 3600 * 3600, -1, -cents from demo_orders where stream = ?
              ) moves group by begins having sum(orders) <> 0 or sum(cents) <> 0) wrong
            """,
            (stream, stream),
            ((0,),),
        )
    ]

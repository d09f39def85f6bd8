"""The business side of the demo: its own tables, its own connection, and plain SQL over the log's tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from penstock.cli.session import sqlite_path
from penstock.log.log import Log
from penstock.stores import blocks

_TABLES = (
    """create table if not exists demo_orders
         (run text, id integer, customer text, cents integer, primary key (run, id))""",
    # Without a key, so that an effect that happened twice would show.
    "create table if not exists demo_scores (run text, order_id integer, score integer)",
)
_ADD_ORDER = "insert into demo_orders (run, id, customer, cents) values (?, ?, ?, ?)"
ADD_SCORE = "insert into demo_scores (run, order_id, score) values (?, ?, ?)"


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
    params: tuple[Any, ...]
    wanted: tuple[Any, ...]


class Database:
    """A connection of the application's own, to the database the log lives in."""

    def __init__(self, connection: Any, translate: Callable[[str], str]) -> None:
        self.connection = connection
        self._translate = translate

    def execute(self, sql: str, params: Sequence[Any] = ()) -> Any:
        return self.connection.execute(self._translate(sql), params)

    @contextmanager
    def transaction(self) -> Iterator[Callable[[], None]]:
        """A business transaction; calling what it yields undoes it instead of committing."""
        undone = []
        self.execute("begin")
        yield lambda: undone.append(True)
        self.execute("rollback" if undone else "commit")

    def add_order(self, run: str, number: int, customer: str, cents: int) -> None:
        self.execute(_ADD_ORDER, (run, number, customer, cents))

    def checks(self, run: str, stream: str, orders: int) -> list[Check]:
        """Nothing lost, nothing twice, totals right."""
        return [self._ask(one) for one in _questions(run, stream, orders)]

    def _ask(self, one: _Question) -> Check:
        row = tuple(self.execute(one.sql, one.params).fetchone())
        return Check(one.what, " ".join(self._translate(one.sql).split()), _said(one.wanted), _said(row))


def _said(row: tuple[Any, ...]) -> str:
    return " = ".join(f"{value:,}" for value in row)


def _questions(run: str, stream: str, orders: int) -> list[_Question]:
    per_group = """select count(*), count(distinct event_id) from penstock.delivery
                    where stream = ? and group_name = ? and state = 'PUBLISHED'"""
    return [
        _Question(
            "orders in the table = events in the log",
            """select (select count(*) from demo_orders where run = ?),
                      (select count(*) from penstock.events where stream = ?)""",
            (run, stream),
            (orders, orders),
        ),
        _Question("published by fraud = distinct events", per_group, (stream, "fraud"), (orders, orders)),
        _Question("published by ledger = distinct events", per_group, (stream, "ledger"), (orders, orders)),
        _Question(
            "scores = distinct orders scored",
            "select count(*), count(distinct order_id) from demo_scores where run = ?",
            (run,),
            (orders, orders),
        ),
        _Question(
            "customers whose total in the state differs from their orders",
            """select count(*) from
                 (select customer, sum(cents) as cents from demo_orders where run = ? group by customer) o
                 left join (select s.key, cast(s.value as integer) as cents from penstock.state s
                              join penstock.groups g on g.group_id = s.group_id
                             where g.stream = ? and g.group_name = 'ledger' and s.name = 'cents') t
                   on t.key = o.customer
                where t.cents is null or t.cents <> o.cents""",
            (run, stream),
            (0,),
        ),
    ]


@contextmanager
def connect(log: Log, url: str) -> Iterator[Database]:
    """The application's connection, with its tables made."""
    connection, translate = _sqlite(url) if log.store.kind == "sqlite" else _postgres(log)
    try:
        database = Database(connection, translate)
        for table in _TABLES:
            database.execute(table)
        yield database
    finally:
        connection.close()


def _sqlite(url: str) -> tuple[Any, Callable[[str], str]]:
    path = sqlite_path(url)
    assert path is not None, "the demo needs a file"
    connection = sqlite3.connect(path, isolation_level=None, timeout=30)
    return connection, lambda sql: sql.replace("penstock.", "penstock_")


def _postgres(log: Log) -> tuple[Any, Callable[[str], str]]:
    import psycopg

    connection = psycopg.connect(log.store.url, autocommit=True)
    schema = getattr(log.store, "schema", "penstock")
    return connection, lambda sql: blocks.in_schema(sql, schema).replace("?", "%s")

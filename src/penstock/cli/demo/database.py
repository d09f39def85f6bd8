"""The shop's own side: its tables and its connection, in the database where the log lives."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from penstock.cli.demo.orders import Order
from penstock.log.log import Log

_TABLES = (
    """create table if not exists demo_orders
         (stream text, id bigint, customer text, cents bigint, placed_at bigint, primary key (stream, id))""",
    # Without keys, so that an effect that happened twice would show.
    "create table if not exists demo_scores (stream text, order_id bigint, score bigint)",
    "create table if not exists demo_windows (stream text, begins bigint, orders bigint, cents bigint)",
)
_ADD_ORDER = "insert into demo_orders (stream, id, customer, cents, placed_at) values (?, ?, ?, ?, ?)"
_HOURS = "select begins, sum(orders), sum(cents) from demo_windows where stream = ? group by begins order by begins"


class Database:
    """A connection of the application's own."""

    def __init__(self, connection: Any, translate: Callable[[str], str], snapshot: str) -> None:
        self.connection = connection
        self.translate = translate  # a statement as this database wants it
        self.snapshot = snapshot  # begins a transaction that sees one moment

    def execute(self, sql: str, params: Sequence[Any] = ()) -> Any:
        return self.connection.execute(self.translate(sql), params)

    @contextmanager
    def transaction(self) -> Iterator[Callable[[], None]]:
        """A business transaction; calling what it yields undoes it instead of committing."""
        undone = []
        self.execute("begin")
        try:
            yield lambda: undone.append(True)
        except BaseException:
            self.execute("rollback")
            raise
        self.execute("rollback" if undone else "commit")

    def add_order(self, stream: str, one: Order) -> None:
        self.execute(_ADD_ORDER, (stream, one.id, one.customer, one.cents, one.placed_at))

    def hours(self, stream: str) -> list[tuple[int, int, int]]:
        """When each hour begins, its orders and its cents, as the pipeline counted them."""
        return [(int(begins), int(orders), int(cents)) for begins, orders, cents in self.execute(_HOURS, (stream,))]


@contextmanager
def connect(log: Log, tables: Sequence[str] = _TABLES) -> Iterator[Database]:
    """The application's connection, with its tables made."""
    connection: Any
    if log.store.kind == "sqlite":
        path = log.store.url.removeprefix("sqlite:///")
        connection, mark, snapshot = sqlite3.connect(path, isolation_level=None, timeout=30), "?", "begin"
    else:
        import psycopg

        connection, mark = psycopg.connect(log.store.url, autocommit=True), "%s"
        snapshot = "begin isolation level repeatable read read only"
    try:
        database = Database(connection, lambda sql: log.store.in_own_words(sql).replace("?", mark), snapshot)
        for table in tables:
            database.execute(table)
        yield database
    finally:
        connection.close()

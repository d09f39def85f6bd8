"""A producer process of the demo: it sells, and every order commits together with its event, or neither does.

`python -m penstock.cli.demo.chaos.producer STREAM SEED NUMBER PARENT`, on the log in $PENSTOCK_URL. It writes the
number of the last order whose commit was acknowledged to standard output, one to a line.
"""

from __future__ import annotations

import random
import signal
import sys
import threading

import penstock
from penstock.cli.demo.chaos.shop import Order
from penstock.cli.demo.chaos.worker import die_with_parent
from penstock.cli.demo.database import Database, connect
from penstock.log.log import Log

_PAUSE_SECONDS = 0.03  # between two transactions
_MOST = 5  # orders in a transaction
_CHANGED_MIND = 0.05  # of all transactions are rolled back
_LAST = "select coalesce(max(number), -1) from chaos_orders where stream = ? and producer = ?"
_ADD = """insert into chaos_orders (stream, producer, number, id, customer, nth, cents, country)
          values (?, ?, ?, ?, ?, ?, ?, ?)"""


class Producer:
    """Sells one order after the other; after an outage it looks up which was the last that is stored."""

    def __init__(self, stream: str, seed: int, number: int) -> None:
        self._stream, self._seed, self._number = stream, seed, number
        self._chance = random.Random(f"{seed}/{number}")
        self.stopping = threading.Event()

    def run(self) -> None:
        """Sell until told to stop; an outage is waited out."""
        while not self.stopping.is_set():
            try:
                with penstock.open() as log, connect(log, ()) as database:
                    self._sell(log, database)
            except Exception as error:  # whatever the driver calls it: the database is away
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
                self.stopping.wait(0.1)

    def _sell(self, log: Log, database: Database) -> None:
        (last,) = database.execute(_LAST, (self._stream, self._number)).fetchone()
        while not self.stopping.wait(_PAUSE_SECONDS):
            orders = [
                Order.of(self._seed, self._number, last + 1 + further)
                for further in range(self._chance.randint(1, _MOST))
            ]
            undone = self._chance.random() < _CHANGED_MIND
            with database.transaction() as undo:
                for one in orders:
                    self._write(log, database, one)
                if undone:
                    undo()
            if not undone:
                last = orders[-1].number
                sys.stdout.write(f"{last}\n")  # the customer has been told
                sys.stdout.flush()

    def _write(self, log: Log, database: Database, one: Order) -> None:
        values = (one.producer, one.number, one.id, one.customer, one.nth, one.cents, one.country)
        database.execute(_ADD, (self._stream, *values))
        log.append(
            self._stream,
            one.event(),
            type="order.created",
            ordering_key=one.customer,
            connection=database.connection,
        )


def main(stream: str, seed: int, number: int, parent: int) -> None:
    """Sell until SIGTERM."""
    die_with_parent(parent)
    producer = Producer(stream, seed, number)
    signal.signal(signal.SIGTERM, lambda *_: producer.stopping.set())
    producer.run()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]))

"""Transactions of the log's own, repeated where the database asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from penstock.core import limits
from penstock.errors import StoreBusy
from penstock.stores.base import Conflict, Store, Transaction

__all__ = ["Transaction", "look", "repeat", "transact"]
T = TypeVar("T")


def transact(store: Store, work: Callable[[Transaction], T], *, write: bool = True) -> T:
    """Run the work in one transaction."""

    def transaction() -> T:
        with store.transaction(write=write) as tx:
            return work(tx)

    return repeat(transaction)


def look(store: Store, work: Callable[[Transaction], T]) -> T:
    """Run work that only reads, in one transaction that sees the log as it was at one moment."""
    return transact(store, work, write=False)


def repeat(work: Callable[[], T]) -> T:
    """Do something that is a whole transaction, and do it again where the database asks for it."""
    for _ in range(limits.SETTLE_RETRIES):
        try:
            return work()
        except Conflict as error:
            asked = error
    raise StoreBusy(f"The database kept asking to try again: {asked}.") from asked

"""The log's own transactions, repeated after conflicts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from penstock.core import limits
from penstock.core.observe import everyone
from penstock.errors import StoreBusy
from penstock.stores.base import Conflict, Store, Transaction

__all__ = ["Transaction", "look", "repeat", "transact"]
T = TypeVar("T")


def transact(store: Store, work: Callable[[Transaction], T], *, write: bool = True) -> T:
    """Run the work in one transaction, repeated after conflicts."""

    def transaction() -> T:
        with store.transaction(write=write) as tx:
            result = work(tx)
        for event in tx.observed:
            everyone.emit(event)
        return result

    return repeat(transaction)


def look(store: Store, work: Callable[[Transaction], T]) -> T:
    """Run work that only reads, in one transaction that sees a consistent snapshot."""
    return transact(store, work, write=False)


def repeat(work: Callable[[], T]) -> T:
    """Run a whole transaction; run it again if the database reports a conflict, `SETTLE_RETRIES` times in all."""
    for _ in range(limits.SETTLE_RETRIES):
        try:
            return work()
        except Conflict as error:
            conflict = error
    raise StoreBusy(f"The database kept reporting conflicts: {conflict}.") from conflict

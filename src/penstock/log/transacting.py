"""What every part of the log stands on: a store, and transactions that are run again where the database asks."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from penstock.core import limits
from penstock.errors import StoreBusy
from penstock.stores.base import Conflict, Store, Transaction

T = TypeVar("T")


class Transacting:
    """A store that is closed in the end."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give every connection back."""
        self.store.close()

    def _run(self, work: Callable[[Transaction], T], *, write: bool = True) -> T:
        """One transaction, run again where the database asks for it."""

        def transaction() -> T:
            with self.store.transaction(write=write) as tx:
                return work(tx)

        return again(transaction)


def again(work: Callable[[], T]) -> T:
    """Do something that is a whole transaction, and do it again where the database asks for it."""
    for _ in range(limits.SETTLE_RETRIES):
        try:
            return work()
        except Conflict as error:
            asked = error
    raise StoreBusy(f"The database kept asking to try again: {asked}.") from asked

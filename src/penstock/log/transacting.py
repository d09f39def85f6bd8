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

    def _run(self, work: Callable[[Transaction], T], *, write: bool = True, only: bool = False) -> T:
        """One transaction, run again where the database asks for it; `only` says that it has a single statement."""
        for last in (*[False] * (limits.SETTLE_RETRIES - 1), True):
            try:
                with self.store.transaction(write=write, only=only) as tx:
                    return work(tx)
            except Conflict as error:
                if last:
                    raise StoreBusy(f"The database kept asking to try again: {error}.") from error
        raise AssertionError("unreachable")

"""Files whose rows became events: each is recorded in the transaction that appends its rows, so it is taken once."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import DuplicateMismatch
from penstock.log import staging
from penstock.log.staging import Staged
from penstock.log.transact import look, transact
from penstock.stores.base import Store, Transaction

_WRITER = "file:"  # begins the names under which files are recorded


class _Taken(Exception):
    """One of the files is known."""


def new_files(store: Store, into: str, names: Sequence[str]) -> list[str]:
    """Return those of the files that were not appended to this stream yet, in their order."""
    writers = [_WRITER + name for name in names]
    rows = look(store, lambda tx: tx.rows("stage.known_writers", stream=into, writers=writers))
    known = {row.writer for row in rows}
    return [name for name in names if _WRITER + name not in known]


def append_files(store: Store, into: str, names: Sequence[str], named: Sequence[Staged]) -> bool:
    """Append what was staged of these files, and record them, in one transaction.

    False if one was recorded before, or if an event's id is taken by another: `refused_rows` tells which.
    """
    counting = [one for one in named if one.events]

    def work(tx: Transaction) -> None:
        for name in sorted(names):  # in one order, so that two of us do not wait for each other
            if not staging.take_batch(tx, into, _WRITER + name, 0, 0):
                raise _Taken
        if counting:
            staging.append(tx, counting)
            tx.wake()

    try:
        transact(store, work)
    except (_Taken, DuplicateMismatch):
        return False
    return True


def refused_rows(store: Store, named: Sequence[Staged]) -> frozenset[int]:
    """Return what those staged events were made of whose ids are taken by other events, staged or stored before."""
    attempts = [one.attempt for one in named if one.events]

    def work(tx: Transaction) -> frozenset[int]:
        found = (*tx.rows("stage.taken_by", attempts=attempts), *tx.rows("stage.taken_twice", attempts=attempts))
        return frozenset(row.source_offset for row in found)

    return look(store, work) if attempts else frozenset()

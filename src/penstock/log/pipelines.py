"""What a pipeline needs of the store: rows put aside by Spark's tasks, moved by the settle, and files yet to be named.

Everything a task puts aside belongs to an attempt of its own (see `staging`) and to the lease it was made for. The
settle moves what the successful attempts brought; what belongs to a lease that has ended otherwise is left over.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import orjson

from penstock.core.lanes import slice_of
from penstock.core.lease import LeaseRow
from penstock.core.user_sql import UserSqlError
from penstock.errors import StagedLost
from penstock.log import staging
from penstock.log.ids import uuid7
from penstock.log.staging import Staged
from penstock.log.transact import look, transact
from penstock.stores.base import Store, Transaction

WRITER = "pipeline"  # of everything that is staged here; the lease is its batch


class StagedRow(NamedTuple):
    """A row on its way into a table: its columns as JSON, and the event it comes from, if that is known."""

    event_offset: int | None
    fields: bytes


class Rename(NamedTuple):
    """A file that is to get its name."""

    source: str
    target: str


class _Undone(Exception):
    """Raised to roll a trial back."""


class PipelineStore:
    """What the pipelines of a log put aside, move and name. It shares the log's store, and does not close it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def offsets(self, lease: LeaseRow) -> list[int]:
        """The members of a lease, by offset alone."""
        return look(self._store, lambda tx: offsets(tx, lease))

    def stage_rows(self, lease: int, chunks: Iterable[Sequence[StagedRow]]) -> Staged:
        """Put the rows of one task attempt aside, a chunk in a transaction: nothing is held while a chunk is made."""
        attempt = uuid7()
        rows = 0
        for chunk in chunks:
            if not chunk:
                continue
            if not rows:
                transact(self._store, lambda tx: begin(tx, attempt, lease))
            transact(self._store, partial(stage_rows, attempt=attempt, rows=chunk))
            rows += len(chunk)
        return Staged(attempt, rows)

    def columns(self, table: str) -> list[str]:
        """The columns of a table of the user's; empty if there is none."""
        return look(self._store, lambda tx: columns(tx, table))

    def check_statement(self, statement: str) -> str | None:
        """Run the statement of a sink without any rows, and undo it; returns what the database has against it."""

        def trial(tx: Transaction) -> None:
            run_statement(tx, statement, [])
            raise _Undone

        try:
            transact(self._store, trial)
        except _Undone:
            return None
        except UserSqlError as error:
            return str(error).strip().partition("\n")[0]
        raise AssertionError("unreachable")

    def drop_leftovers(self) -> int:
        """Drop what was put aside for leases that have ended."""
        return transact(self._store, drop_leftovers)

    def due_renames(self, folder: str) -> dict[int, Rename]:
        """Every file of a folder that is to get its name."""
        return look(self._store, lambda tx: due_renames(tx, folder))

    def forget_renames(self, done: dict[int, Rename]) -> None:
        """These files have their names."""
        if done:
            transact(self._store, lambda tx: forget_renames(tx, done))

    def ended(self, leases: Sequence[int]) -> set[int]:
        """Which of these leases have ended."""
        return look(self._store, lambda tx: ended(tx, leases)) if leases else set()


# --- in the caller's transaction --------------------------------------------------------------------------------------


def offsets(tx: Transaction, lease: LeaseRow) -> list[int]:
    """The members of a lease, by offset alone."""
    if lease.offsets is not None:
        return sorted(lease.offsets)
    first, last = slice_of(lease.lane, lease.lanes)
    found = tx.rows(
        "pipeline.offsets",
        stream=lease.stream,
        low=lease.low,
        high=lease.high,
        binding=lease.binding,
        first_bucket=first,
        last_bucket=last,
        holes=list(lease.holes),
    )
    return [row.offset for row in found]


def begin(tx: Transaction, attempt: uuid.UUID, lease: int) -> None:
    """Announce a task attempt that works for a lease."""
    staging.begin(tx, attempt, WRITER, lease)


def stage_rows(tx: Transaction, attempt: uuid.UUID, rows: Sequence[StagedRow]) -> None:
    """Put rows aside under an attempt that nobody has given up."""
    if not tx.rows("stage.hold", attempts=[attempt]):
        raise StagedLost("This attempt was given up: its lease has ended.")
    tx.stage_rows(rows, attempt)


def move_rows(tx: Transaction, statement: str, named: Sequence[Staged]) -> None:
    """Put what these attempts brought into the user's table, with a statement that takes their ids as its parameter."""
    attempts = [one.attempt for one in named]
    tx.rows("stage.hold", attempts=attempts)
    found = tx.one("pipeline.count", attempts=attempts)
    wanted = sum(one.events for one in named)
    if found is None or found.events != wanted:
        raise StagedLost(f"Tasks have staged {wanted:,} rows, and {0 if found is None else found.events:,} are there.")
    run_statement(tx, statement, attempts)
    drop(tx, attempts)


def run_statement(tx: Transaction, statement: str, attempts: Sequence[uuid.UUID]) -> None:
    """Run the statement of a sink for what these attempts brought; raises `UserSqlError`."""
    tx.user_sql(statement, [orjson.dumps(attempts).decode()])
    tx.check_user_sql_so_far()


def drop(tx: Transaction, attempts: Sequence[uuid.UUID]) -> None:
    """Forget what these attempts have put aside."""
    staging.drop(tx, attempts)
    if attempts:
        tx.run("pipeline.drop_rows", attempts=list(attempts))


def drop_leftovers(tx: Transaction) -> int:
    """Drop what belongs to leases that have ended; returns how many attempts there were."""
    found = [uuid.UUID(str(row.attempt)) for row in tx.rows("pipeline.leftovers")]
    drop(tx, found)
    return len(found)


def columns(tx: Transaction, table: str) -> list[str]:
    """The columns of a table of the user's; empty if there is none. The name is quoted where it has to be."""
    return [row.name for row in tx.rows("pipeline.columns", table=table)]


def note_renames(tx: Transaction, lease: int, folder: str, renames: Sequence[Rename]) -> None:
    """Write down which files are to get their names once this transaction is through."""
    tx.run("rename.note", lease=lease, folder=folder, rows=[one._asdict() for one in renames], now=tx.now())


def due_renames(tx: Transaction, folder: str) -> dict[int, Rename]:
    """Every file of a folder that is to get its name."""
    return {row.id: Rename(row.source, row.target) for row in tx.rows("rename.due", folder=folder)}


def forget_renames(tx: Transaction, done: Mapping[int, Rename]) -> None:
    """These files have their names."""
    tx.run("rename.forget", ids=sorted(done))


def ended(tx: Transaction, leases: Sequence[int]) -> set[int]:
    """Which of these leases have ended."""
    return {row.id for row in tx.rows("rename.ended", ids=list(leases))}

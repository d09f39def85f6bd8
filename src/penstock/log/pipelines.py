"""Storage for pipelines: rows that Spark's tasks stage and the settle moves, and files to be renamed.

Everything a task stages belongs to its own attempt (see `staging`) and to its lease. The settle moves the rows of the
successful attempts; rows of a lease that ended otherwise are left over, and dropped.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import partial
from typing import Any, NamedTuple

import orjson

from penstock.core.lanes import slice_of
from penstock.core.lease import LeaseRow
from penstock.core.target import StagingTable, Target
from penstock.core.user_sql import UserSqlError
from penstock.errors import StagedLost
from penstock.log import staging
from penstock.log.ids import uuid7
from penstock.log.staging import Staged
from penstock.log.transact import look, transact
from penstock.stores.base import Store, Transaction

WRITER = "pipeline"  # of everything that is staged here; the lease is its batch


class Rename(NamedTuple):
    """A file that must be renamed; its names are paths in its folder."""

    source: str
    target: str
    folder: str


class _Undone(Exception):
    """Raised to roll a trial back."""


class PipelineStore:
    """Staged rows and pending renames of a log's pipelines. Shares the log's store and does not close it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def offsets(self, lease: LeaseRow) -> list[int]:
        """Return the offsets of a lease's members."""
        return look(self._store, lambda tx: offsets(tx, lease))

    def stage_rows(self, lease: int, table: StagingTable, batches: Iterable[Any]) -> Staged:
        """Stage the rows of one task attempt, one transaction per record batch, so that none stays open while it waits.

        The column `offset`, if there is one, names the event of a row.
        """
        attempt = uuid7()
        rows = 0
        for batch in batches:
            if not len(batch):
                continue
            if not rows:
                transact(self._store, lambda tx: begin(tx, attempt, lease))
            transact(self._store, partial(stage_rows, table=table, attempt=attempt, first=rows, rows=batch))
            rows += len(batch)
        return Staged(attempt, rows)

    def staging_table(self, target: Target) -> StagingTable:
        """Return where rows of this shape are staged; made where it is missing."""
        return transact(self._store, lambda tx: tx.staging_table(target))

    def columns(self, table: str) -> list[str]:
        """Return the columns of a user's table; empty if there is none."""
        return look(self._store, lambda tx: columns(tx, table))

    def check_statement(self, statement: str) -> str | None:
        """Try the statement of a sink without rows and roll it back; returns the database's error, if any."""

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
        """Drop what was staged for leases that have ended; returns the number of attempts."""
        found = transact(self._store, drop_leftovers)
        transact(self._store, lambda tx: tx.shrink_staging())
        return found

    def due_renames(self, folder: str, stream: str, group: str) -> dict[int, Rename]:
        """Return the pending renames of a folder, and those of a group in any folder."""
        return look(self._store, lambda tx: due_renames(tx, folder, stream, group))

    def forget_renames(self, done: dict[int, Rename]) -> None:
        """Delete renames that are done."""
        if done:
            transact(self._store, lambda tx: forget_renames(tx, done))

    def ended(self, leases: Sequence[int]) -> set[int]:
        """Return those of the leases that have ended."""
        return look(self._store, lambda tx: ended(tx, leases)) if leases else set()


# --- in the caller's transaction --------------------------------------------------------------------------------------


def offsets(tx: Transaction, lease: LeaseRow) -> list[int]:
    """Return the offsets of a lease's members."""
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


def stage_rows(tx: Transaction, table: StagingTable, attempt: uuid.UUID, first: int, rows: Any) -> None:
    """Stage rows under an attempt that was not given up."""
    if not tx.rows("stage.hold", attempts=[attempt]):
        raise StagedLost("This attempt was given up: its lease has ended.")
    tx.stage_rows(table, attempt, first, rows)


def move_rows(tx: Transaction, table: StagingTable, named: Sequence[Staged], failed: Set[int] = frozenset()) -> None:
    """Move the rows of these attempts, but for those of failed events, into the user's table."""
    attempts = [one.attempt for one in named]
    tx.rows("stage.hold", attempts=attempts)
    found = tx.one("pipeline.count", attempts=attempts)
    wanted = sum(one.events for one in named)
    if found is None or found.events != wanted:
        raise StagedLost(f"Tasks staged {wanted:,} rows, but {0 if found is None else found.events:,} are left.")
    if failed:
        tx.run("pipeline.drop_failed", attempts=attempts, offsets=sorted(failed))
    run_statement(tx, table.move, attempts)
    drop(tx, attempts)


def run_statement(tx: Transaction, statement: str, attempts: Sequence[uuid.UUID], *part: int) -> None:
    """Run a statement of a `StagingTable` for the rows of these attempts; raises `UserSqlError`."""
    tx.user_sql(statement, [orjson.dumps(attempts).decode(), *part])
    tx.check_user_sql_so_far()


def drop(tx: Transaction, attempts: Sequence[uuid.UUID]) -> None:
    """Drop what these attempts have staged."""
    staging.drop(tx, attempts)
    if attempts:
        tx.run("pipeline.drop_rows", attempts=list(attempts))


def drop_leftovers(tx: Transaction) -> int:
    """Drop what belongs to ended leases; returns the number of attempts."""
    found = [uuid.UUID(str(row.attempt)) for row in tx.rows("pipeline.leftovers")]
    drop(tx, found)
    return len(found)


def columns(tx: Transaction, table: str) -> list[str]:
    """Return the columns of a user's table; empty if there is none. The caller quotes the name where needed."""
    return [row.name for row in tx.rows("pipeline.columns", table=table)]


def note_renames(tx: Transaction, lease: int, renames: Sequence[Rename]) -> None:
    """Record which files to rename once this transaction has committed."""
    tx.run("rename.note", lease=lease, rows=[one._asdict() for one in renames], now=tx.now())


def due_renames(tx: Transaction, folder: str, stream: str, group: str) -> dict[int, Rename]:
    """Return the pending renames of a folder, and those of a group in any folder."""
    found = tx.rows("rename.due", folder=folder, stream=stream, group_name=group)
    return {row.id: Rename(row.source, row.target, row.folder) for row in found}


def forget_renames(tx: Transaction, done: Mapping[int, Rename]) -> None:
    """Delete renames that are done."""
    tx.run("rename.forget", ids=sorted(done))


def ended(tx: Transaction, leases: Sequence[int]) -> set[int]:
    """Return those of the leases that have ended."""
    return {row.id for row in tx.rows("rename.ended", ids=list(leases))}

"""What pipelines put aside and move: see `stores.pipelines`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from penstock.core.lease import LeaseRow
from penstock.log.ids import uuid7
from penstock.log.transacting import Transacting
from penstock.stores import pipelines
from penstock.stores.base import Transaction, UserSqlError
from penstock.stores.pipelines import Rename, StagedRow
from penstock.stores.staging import Staged


class _Undone(Exception):
    """Raised to roll a trial back."""


class Piping(Transacting):
    """One log's side of its pipelines. It shares the log's store, and does not close it."""

    def offsets(self, lease: LeaseRow) -> list[int]:
        """The members of a lease, by offset alone."""
        return self._run(lambda tx: pipelines.offsets(tx, lease), write=False)

    def stage_rows(self, lease: int, chunks: Iterable[Sequence[StagedRow]]) -> Staged:
        """Put the rows of one task attempt aside, a chunk in a transaction: nothing is held while a chunk is made."""
        attempt = uuid7()
        rows = 0
        for chunk in chunks:
            if not chunk:
                continue
            if not rows:
                self._run(lambda tx: pipelines.begin(tx, attempt, lease))
            self._run(partial(pipelines.stage_rows, attempt=attempt, rows=chunk))
            rows += len(chunk)
        return Staged(attempt, rows)

    def columns(self, table: str) -> list[str]:
        """The columns of a table of the user's; empty if there is none."""
        return self._run(lambda tx: pipelines.columns(tx, table), write=False)

    def check_statement(self, statement: str) -> str | None:
        """Run the statement of a sink without any rows, and undo it; returns what the database has against it."""

        def trial(tx: Transaction) -> None:
            pipelines.run_statement(tx, statement, [])
            raise _Undone

        try:
            self._run(trial)
        except _Undone:
            return None
        except UserSqlError as error:
            return str(error).strip().partition("\n")[0]
        raise AssertionError("unreachable")

    def drop_leftovers(self) -> int:
        """Drop what was put aside for leases that have ended."""
        return self._run(pipelines.drop_leftovers)

    def due_renames(self, folder: str) -> dict[int, Rename]:
        """Every file of a folder that is to get its name."""
        return self._run(lambda tx: pipelines.due_renames(tx, folder), write=False)

    def forget_renames(self, done: dict[int, Rename]) -> None:
        """These files have their names."""
        if done:
            self._run(lambda tx: pipelines.forget_renames(tx, done))

    def ended(self, leases: Sequence[int]) -> set[int]:
        """Which of these leases have ended."""
        return self._run(lambda tx: pipelines.ended(tx, leases), write=False) if leases else set()

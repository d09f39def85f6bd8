"""The contract of a store: a transaction that runs named SQL blocks, and what the verbs need around it.

The verbs (claim, settle, reap, …) are written once, in `penstock.log`. Each store brings the SQL of every block in its
own dialect, in `.sql` files named after the verb.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, LiteralString, Protocol

from penstock.core.columns import Columns
from penstock.core.event import EventColumns, NewEvent, StoredEvent
from penstock.core.finding import Finding, Level
from penstock.core.lease import LeaseRow
from penstock.core.look import Sight
from penstock.core.observe import Observed
from penstock.core.target import StagingTable, Target

Row = Any  # a row whose columns are attributes: see `rows`, or the block's SQL
Call = tuple[str, dict[str, Any]]  # a block and its parameters
StatementHook = Callable[[str, str], None]  # ("before" | "after", block): tests kill the process in here


class IdTaken(Exception):
    """An event was appended as new, and its id is known."""


class Conflict(Exception):
    """The database asks for the transaction to be run again (serialization failure, deadlock)."""


class Transaction(Protocol):
    """One database transaction; leaving its block commits, an exception rolls back."""

    observed: list[Observed]  # to be emitted once the transaction has committed
    finds_lanes: bool  # its index tells the lane of an event

    def rows(self, block: str, **params: Any) -> list[Row]:
        """Run a block and return its rows."""

    def one(self, block: str, **params: Any) -> Row | None:
        """Run a block and return its first row."""

    def run(self, block: str, **params: Any) -> int:
        """Run a block and return how many rows it touched."""

    def together(self, *calls: Call) -> list[list[Row]]:
        """Run blocks in one round trip, one after the other; the rows of each."""

    def later(self, block: str, **params: Any) -> None:
        """Run a block whose answer nobody needs: together with what comes next, and before the commit."""

    def now(self) -> datetime:
        """The store's time, at this moment."""

    def look(self, block: str, **params: Any) -> list[Row]:
        """Run the block with which a claimer looks around: in one round trip it finds the last offset, who appends,
        and behind that everything else."""

    def finish(
        self, block: str, *, read: tuple[str, Mapping[str, Any]] | None = None, **params: Any
    ) -> tuple[list[Row], Columns | None]:
        """Run the last statement of the transaction and a reading block behind it, and commit: one round trip."""

    def forget(self) -> None:
        """Nothing was written that is worth a commit."""

    def horizon(self, last: int | None = None) -> int:
        """The highest offset below which nothing can still appear. Read events only in a later statement.

        `last` is the last offset given out, if an earlier statement of this transaction has read it.
        """

    def append(self, events: Sequence[NewEvent] | EventColumns, *, unique: bool) -> int:
        """Store events; return how many were duplicates. Of columns, and if `unique`, no id may be known: `IdTaken`."""

    def put_back(self, events: Sequence[StoredEvent]) -> list[int]:
        """Store archived events under their own offsets; returns the offsets of those that were not there."""

    def stage(self, events: Sequence[NewEvent], attempt: uuid.UUID, sources: Sequence[int] | None = None) -> None:
        """Put events aside for a task attempt, with the offsets of the events that they were made of, if known."""

    def stage_rows(self, table: StagingTable, attempt: uuid.UUID, first: int, rows: Any) -> None:
        """Stage the rows of a record batch for a task attempt; `first` of its rows were staged before.

        `InvalidPayload` for what no table takes.
        """

    def staging_table(self, target: Target) -> StagingTable:
        """Return where rows of this shape are staged; made where it is missing."""

    def shrink_staging(self) -> None:
        """Give the space of staging tables back that nobody uses."""

    def user_sql(self, sql: str, params: Sequence[Any]) -> None:
        """Run a statement of the user's; raises `UserSqlError` if it fails or returns rows."""

    def check_user_sql_so_far(self) -> None:
        """Let constraints speak that would wait for the commit; raises `UserSqlError`."""

    def neutral(self, block: str, params: Mapping[str, Any]) -> Sequence[Any] | None:
        """Run a block in neutral form (`:name`), as the outbox does on foreign connections; its first row."""

    def savepoint(self) -> AbstractContextManager[None]:
        """What happens inside is undone if it raises."""

    def wake(self) -> None:
        """Notify idle workers at the commit: at most once in a few milliseconds, and only if any wait."""


class Store(Protocol):
    """A log in one database."""

    url: str
    kind: str
    claims_at_once: bool  # a simple claim takes one statement
    has_standbys: bool  # servers may follow this one and answer reads
    errors_abort: bool  # a statement that fails makes its transaction useless, unless a savepoint was set
    large_reads_need: tuple[str, ...]  # modules worth loading beforehand
    blocks: Mapping[str, LiteralString]
    clock: Clock | None
    hook: StatementHook | None

    @property
    def told_now(self) -> datetime | None:
        """The time for a statement that can ask the database itself; None where it had better do so."""

    def transaction(self, *, write: bool = True) -> AbstractContextManager[Transaction]:
        """A transaction of Penstock's own, with timeouts that a stopped process cannot outlive.

        One that does not write sees the log as it was at one moment.
        """

    def only(self, block: str, **params: Any) -> Sequence[Sequence[Any]]:
        """Run a statement that is a transaction of its own: one round trip. It makes its own settings."""

    def append_one(self, event: NewEvent) -> int | None:
        """Store an event and tell those who wait, in one statement; its offset. None if its id is known, or if that
        takes more than a statement here: nothing was done."""

    def outbox_params(self, event: NewEvent) -> dict[str, Any]:
        """The parameters of the neutral `outbox.*` blocks, as any driver of this database takes them."""

    def neutral_params(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters of a neutral block, as any driver of this database takes them."""

    def is_own(self, found: Sequence[Any]) -> bool:
        """Whether what `outbox.identity` said on a caller's connection is said of this log's own database."""

    @property
    def safe_url(self) -> str:
        """The URL without its password."""

    def read_events(self, stream: str, after: int, upto: int, limit: int) -> Columns:
        """Events in offset order."""

    def read_lease(self, lease: LeaseRow) -> Columns:
        """The members of a lease, in offset order; rows of a list lease carry attempts, failures, error, replays,
        attempts of earlier lives."""

    def read_columns(self, block: str, **params: Any) -> Columns:
        """What a reading block finds."""

    def read_pieces(self, block: str, columns: Sequence[str] | None = None, **params: Any) -> Iterator[Any]:
        """What a reading block finds, as it was when the first of it was read: in Arrow record batches where the driver
        makes them (then only these `columns`), else in lists of rows."""

    def check_arrow(self) -> None:
        """`MissingDependency` if reading in pieces needs a driver that is not installed."""

    def lease_query(self, lease: LeaseRow) -> tuple[str, dict[str, Any]]:
        """The block that reads what a lease contains, and its parameters."""

    def sight(self) -> Sight:
        """A connection of its own to watch the log with."""

    def warm(self) -> None:
        """Load what large reads need, so that the first of them need not."""

    def in_own_words(self, sql: str) -> str:
        """A statement that names tables as `penstock.events`, as this database knows them."""

    def shown(self, block: str, params: Mapping[str, Any]) -> str:
        """A reading block with its parameters written into it, for people to run."""

    def table_name(self, table: str) -> str:
        """A table of the user's as the block `pipeline.columns` takes its name."""

    def exists(self) -> bool:
        """Whether there is a database to connect to; a file is not created by asking."""

    def migrate(self) -> list[str]:
        """Create or upgrade the schema; returns the migrations that ran."""

    def health(self, tx: Transaction, now: datetime) -> Iterable[Finding]:
        """Whether the database is set up to keep the log's promises; nothing is changed."""

    def mend_indexes(self) -> list[str]:
        """Create every index that is missing or cannot be used, without holding up writers; returns their names."""

    def make_home(self) -> bool:
        """Make a log that was copied from another server one of this server's; False if it was one."""

    def override_clock(self) -> None:
        """Note in the log that its times are a test's, so that the law does not compare them with the database's."""

    def close(self) -> None:
        """Give every connection back."""


def missing_indexes(wanted: Set[str], tx: Transaction) -> Finding:
    """Whether every index of the schema exists, and can be used."""
    valid = {row.name: bool(row.valid) for row in tx.rows("doctor.indexes")}
    missing, invalid = sorted(wanted - {*valid}), sorted(name for name in wanted & {*valid} if not valid[name])
    said = [f"{title}: {', '.join(names)}." for title, names in (("Missing", missing), ("Invalid", invalid)) if names]
    if said:
        todo = "`penstock doctor --repair` creates them again; `penstock init --sql` shows their statements."
        return Finding(Level.PROBLEM, "indexes", " ".join(said), todo)
    return Finding(Level.OK, "indexes", f"All {len(wanted)} are there.")


def schema_version(newest: int, tx: Transaction) -> Finding:
    """Which version the schema has; one that this code does not know is refused before anybody gets here."""
    row = tx.one("doctor.schema")
    found = 0 if row is None else int(row.version)
    if found < newest:
        what = f"The schema has version {found}; this Penstock brings {newest}."
        return Finding(Level.PROBLEM, "schema", what, "Run `penstock init` as the owner of the schema.")
    return Finding(Level.OK, "schema", f"Version {found}.")


class Clock(Protocol):
    """Anything that knows the time."""

    def now(self) -> datetime:
        """An aware datetime in UTC."""

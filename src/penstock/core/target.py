"""`Target`: a table of the user's; `StagingTable`: where rows wait, and how they get into it."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """A table, and what happens to a row whose keys are there already; the names of columns hold no quotes.

    With `version` it is replaced by a row of a higher version only. The columns `add` are added to those of the row.
    """

    table: str
    columns: Sequence[str]
    kinds: Sequence[str]  # of the columns of the rows, as Spark calls its types: bigint, decimal(9,2), array<int>, …
    keys: Sequence[str] = ()
    add: Sequence[str] = ()
    version: str | None = None

    @property
    def binary(self) -> Set[str]:
        """Columns that hold bytes."""
        return {name for name, kind in zip(self.columns, self.kinds, strict=True) if kind == "binary"}


@dataclass(frozen=True, slots=True)
class StagingTable:
    """Where the rows of a table are staged. Made by the store, and sent to Spark's tasks."""

    name: str
    columns: Sequence[str]  # of the rows, in the order of the staging table's own
    types: Sequence[str]  # of those
    move: str  # the statement that moves rows into the user's table; its parameter: a JSON array of attempts
    move_part: str  # the same for the rows of some events; two more parameters: the lowest and the highest offset

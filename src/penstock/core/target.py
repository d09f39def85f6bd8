"""`Target`: a table of the user's, and how rows get into it."""

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
    keys: Sequence[str] = ()
    add: Sequence[str] = ()
    version: str | None = None
    binary: Set[str] = frozenset()  # columns that hold bytes

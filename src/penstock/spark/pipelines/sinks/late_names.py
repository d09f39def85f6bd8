"""Files that get their names after the settle: recorded in its transaction, then renamed.

A driver that dies before the settle leaves hidden files that readers ignore. One that dies after it leaves a record in
the database, and the next driver renames the files. Renaming twice changes nothing.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from penstock.core.lease import LeaseRow
from penstock.core.signals import Unavailable
from penstock.log import pipelines
from penstock.log.pipelines import PipelineStore, Rename
from penstock.spark.pipelines.sinks.base import Aside, Move
from penstock.spark.pipelines.sinks.folders import HIDDEN

_NAME: Final = re.compile(r"part-[0-9a-f]{8}-(?P<lease>\d+)-[0-9a-f]{32}(\.parquet)?\Z")


class Folder(Protocol):
    """A folder with a hidden part. Everything raises `OSError`."""

    def give_name(self, one: Rename) -> None:
        """Rename a file; do nothing if it was done before."""

    def hidden(self) -> list[str]:
        """Return the names of what is not yet, or never, to be seen."""

    def drop(self, name: str) -> None:
        """Delete something hidden."""


class LateNames:
    """The names of one pipeline's files."""

    def __init__(
        self,
        staged: PipelineStore,
        safe_url: str,
        group: tuple[str, str],
        path: str,
        open_folder: Callable[[str], Folder],
    ) -> None:
        self._staged = staged
        self._mark = hashlib.sha256(safe_url.encode()).hexdigest()[:8]  # of this log: others have the same lease ids
        self._group = group
        self._path = path
        self._open = open_folder

    def start(self, lease: int) -> str:
        """Return how the names of everything that is written for a lease begin."""
        return f"part-{self._mark}-{lease}"

    def hidden_name(self, lease: int) -> str:
        """Make a name that no other attempt has."""
        return f"{self.start(lease)}-{uuid.uuid4().hex}"

    def move(self, row: LeaseRow, aside: Sequence[Aside]) -> Move | None:
        """Return what the settle does: record that these files get their names."""
        renames = [Rename(f"{HIDDEN}/{one.name}", one.name.replace("/", "-"), self._path) for one in aside]
        return (lambda tx: pipelines.note_renames(tx, row.id, renames)) if renames else None

    def finish(self) -> None:
        """Give all names that are due, those that this group once wrote elsewhere, too."""
        due = self._staged.due_renames(self._path, *self._group)
        for path in sorted({one.folder for one in due.values()}):
            here = {number: one for number, one in due.items() if one.folder == path}
            try:
                self._finish(self._open(path), here)
            except OSError as error:
                raise Unavailable(f"The files of {path} cannot be given their names: {error}") from error

    def _finish(self, folder: Folder, due: dict[int, Rename]) -> None:
        for one in due.values():
            folder.give_name(one)
        self._staged.forget_renames(due)
        for name in {_entry(one) for one in due.values() if one.source.count("/") > 1}:
            folder.drop(name)  # the folder that a Spark job wrote, empty now

    def clean(self) -> None:
        """Give the names that another driver did not, and delete what belongs to ended leases and waits for none."""
        self.finish()
        folder = self._open(self._path)
        found = {name: _NAME.match(name) for name in folder.hidden() if name.startswith(f"part-{self._mark}-")}
        mine = {name: int(one["lease"]) for name, one in found.items() if one is not None}
        ended = self._staged.ended(sorted(set(mine.values())))
        # Read this second: a lease that has ended recorded its renames in the same transaction.
        waiting = {_entry(one) for one in self._staged.due_renames(self._path, *self._group).values()}
        for name, lease in mine.items():
            if lease in ended and name not in waiting:
                folder.drop(name)


def _entry(one: Rename) -> str:
    """The name in the hidden folder: a file, or the folder of a Spark job."""
    return one.source.split("/")[1]

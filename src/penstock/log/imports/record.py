"""The record of an import: how far it has come, what it took, and the groups that it makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from penstock.core.group import Group
from penstock.core.imported import Target
from penstock.errors import ImportConflict
from penstock.log import create_group, groups
from penstock.log.transact import look, transact
from penstock.stores.base import Store, Transaction
from penstock.stores.rows import ImportRow

COPYING, SETTLING, DONE = "copying", "settling", "done"


@dataclass(frozen=True, slots=True)
class Import:
    """An import as it is stored."""

    id: int
    state: str
    position: Any  # of the last entry that was stored; None at the beginning
    counts: dict[str, Any]
    by: str

    @property
    def reason(self) -> str:
        """Why its groups are paused."""
        return f"import {self.id} is not finished"


def begin(
    store: Store, system: str, source: str, options: dict[str, Any], targets: Sequence[Target], by: str
) -> Import:
    """Begin an import, or go on with it. Groups are made paused: nobody claims from them before they are complete.

    A group that exists and was not made by this import is refused. If groups of this import were deleted, it begins
    again; events that are stored are recognised by their ids.
    """
    text = orjson.dumps(options, option=orjson.OPT_SORT_KEYS).decode()

    def work(tx: Transaction) -> Import:
        tx.run("import.create", system=system, source=source, options=text, by=by, now=tx.now())
        row: ImportRow | None = tx.one("import.find", system=system, source=source)
        assert row is not None, "it has just been created"
        made = {(one.stream, one.group_name) for one in tx.rows("import.groups", id=row.id)}
        missing = [one for one in targets if (one.stream, one.group) not in made]
        if missing:
            _make(tx, of(row), missing)
            tx.run("import.restart", id=row.id, options=text)
        elif row.options != text and row.state != DONE:
            raise ImportConflict(f"This import was begun with other options: {row.options}.")
        row = tx.one("import.locked", id=row.id)
        assert row is not None, "it is locked"
        return of(row)

    return transact(store, work)


def now(store: Store) -> datetime:
    """Return the time of the log."""
    return look(store, lambda tx: tx.now())


def of(row: ImportRow) -> Import:
    """Make an import from its row."""
    position = None if row.read_upto is None else orjson.loads(row.read_upto)
    return Import(row.id, row.state, position, orjson.loads(row.counts), row.by)


def _make(tx: Transaction, one: Import, targets: Sequence[Target]) -> None:
    for target in targets:
        if groups.find(tx, target.stream, target.group) is not None:
            raise ImportConflict(f"The group {target.group!r} on {target.stream!r} exists, and is not of this import.")
        group = create_group.ensure(tx, target.stream, target.group, target.start, target.settings)
        tx.run("group.pause", group_id=group.group_id, paused=True, reason=one.reason)
        tx.run("import.add_group", id=one.id, group_id=group.group_id, upto=group.floor)


def locked(tx: Transaction, known: Import) -> Import:
    """Lock an import; raise `ImportConflict` if another process has moved it on."""
    row: ImportRow | None = tx.one("import.locked", id=known.id)
    if row is None or (found := of(row)).position != known.position or found.state != known.state:
        raise ImportConflict("Another process goes on with this import.")
    return found


def check_paused(group: Group, one: Import) -> None:
    """Raise `ImportConflict` if somebody has resumed a group before it was complete."""
    if not group.paused or group.pause_reason != one.reason:
        raise ImportConflict(
            f"The group {group.group_name!r} on {group.stream!r} was resumed before its import was complete."
        )


def save(
    tx: Transaction,
    one: Import,
    *,
    position: Any,
    counts: dict[str, Any],
    state: str,
    ended_at: datetime | None = None,
) -> None:
    """Store how far an import has come."""
    tx.run(
        "import.save",
        id=one.id,
        read_upto=None if position is None else orjson.dumps(position).decode(),
        counts=orjson.dumps(counts).decode(),
        state=state,
        ended_at=ended_at,
    )

"""List the streaming readers of a group, and take back what they hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from penstock.core.event import check_key, check_text
from penstock.errors import MissingField, UnknownReader
from penstock.log import audit, checks, groups
from penstock.log.reader_claims import CLAIMED_BY, give_back_lease
from penstock.log.selection import Moved
from penstock.log.transact import look, transact
from penstock.stores.base import Store, Transaction
from penstock.stores.rows import OpenRow


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader with open claims: how many events it holds, since when, and until when."""

    reader: str
    events: int
    claimed_at: datetime
    expires_at: datetime


def listed(store: Store, stream: str, group: str) -> list[Reader]:
    """Return the readers of a group that hold claims."""
    return look(store, lambda tx: _listed(tx, stream, group))


def _listed(tx: Transaction, stream: str, group_name: str) -> list[Reader]:
    group = groups.get(tx, stream, group_name)
    by_name: dict[str, list[OpenRow]] = {}
    leases: list[OpenRow] = tx.rows("reader.open", group_id=group.group_id, claimed_by=None)
    for lease in leases:
        by_name.setdefault(lease.claimed_by.removeprefix(CLAIMED_BY), []).append(lease)
    return [_reader(name, held) for name, held in sorted(by_name.items())]


def _reader(name: str, leases: Sequence[OpenRow]) -> Reader:
    return Reader(
        name,
        sum(lease.members for lease in leases),
        min(lease.claimed_at for lease in leases),
        min(lease.expires_at for lease in leases),
    )


def release(
    store: Store, stream: str, group: str, reader: str, *, dry_run: bool, by: str | None, reason: str | None = None
) -> Moved:
    """Take back what a reader holds, due at once and without counting a failure."""
    known, author, why = check_key(reader, "reader"), checks.author(by), check_text(reason, "reason")
    if known is None:
        raise MissingField("reader is missing.")
    name = known.removeprefix(CLAIMED_BY)
    return Moved(transact(store, lambda tx: _release(tx, stream, group, name, dry_run, author, why)), dry_run)


def _release(
    tx: Transaction, stream: str, group_name: str, reader: str, dry_run: bool, by: str, reason: str | None
) -> int:
    group = groups.locked(tx, stream, group_name)
    if tx.one("reader.known", reader=reader, group_id=group.group_id) is None:
        raise UnknownReader(f"No reader {reader!r} has ever claimed from {group_name!r} on {stream!r}.")
    leases: list[OpenRow] = tx.rows("reader.open", group_id=group.group_id, claimed_by=f"{CLAIMED_BY}{reader}")
    if dry_run:
        return sum(lease.members for lease in leases)
    count = sum(give_back_lease(tx, group, lease.id) for lease in leases)
    audit.record_for(tx, by, "release", group, count, {"reader": reader} | audit.because(reason))
    return count

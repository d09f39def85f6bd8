"""Skip: let a key that halted at a dead letter continue."""

from __future__ import annotations

from penstock.core.delivery import Reason, State
from penstock.core.event import check_text
from penstock.log import audit, checks, deliveries, groups
from penstock.log.selection import Moved, Selection
from penstock.log.transact import look, transact
from penstock.stores.base import Store, Transaction

_PAGE = 1_000


def skip(
    store: Store, stream: str, group: str, key: str, *, dry_run: bool, by: str | None, reason: str | None = None
) -> Moved:
    """Let a halted key continue; its dead letters stay DEAD."""
    known, author, why = checks.required_key(key, "key"), checks.author(by), check_text(reason, "reason")
    if dry_run:
        return Moved(_halting(store, stream, group, known), dry_run)

    def work(tx: Transaction) -> int:
        found = groups.locked(tx, stream, group)
        skipped = tx.run("skip.key", group_id=found.group_id, key=known, now=tx.now())
        audit.record_for(tx, author, "skip", found, skipped, {"key": known} | audit.because(why))
        return skipped

    return Moved(transact(store, work))


def _halting(store: Store, stream: str, group: str, key: str) -> int:
    """Count the dead letters of a key that were not skipped yet."""

    def work(tx: Transaction) -> int:
        count = after = 0
        while page := deliveries.page(tx, stream, group, Selection(), state=State.DEAD, after=after, limit=_PAGE):
            count += sum(one.ordering_key == key and one.reason != Reason.SKIPPED for one in page)
            after = page[-1].offset
        return count

    return look(store, work)

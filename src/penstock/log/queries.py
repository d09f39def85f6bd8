"""Micro-batches of streaming queries: what their tasks staged is moved once, by query id and batch id."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.core.limits import STAGED_SECONDS
from penstock.log import groups, pipelines, reader_claims, reader_outcomes, staging
from penstock.log.transact import look, transact
from penstock.stores.base import Store, Transaction

Claim = tuple[str, int]  # a reader, and the number of its claim


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One micro-batch of a query: what its sink writes at most once."""

    sink: str
    query: str
    number: int

    @property
    def staged_as(self) -> int:
        """The number under which its tasks stage rows: negative, because it is not a lease."""
        digest = hashlib.sha256(f"{self.query}/{self.number}".encode()).digest()
        return -1 - (int.from_bytes(digest[:8]) >> 1)


def commit(
    store: Store,
    batch: MicroBatch,
    rows: int,
    move: Callable[[Transaction], None] | None,
    failed: Mapping[int, Any],
    claims: Iterable[Claim],
) -> bool:
    """Move what the tasks of a micro-batch staged, and record which of its events failed, in one transaction.

    False, and nothing is changed, if the batch was committed before. What is left over is dropped in either case.
    """
    said = reader_outcomes.said(failed)
    listed = list(claims)

    def work(tx: Transaction) -> bool:
        if not staging.take_batch(tx, batch.sink, f"query:{batch.query}", batch.number, rows):
            return False
        if move is not None:
            move(tx)
        if said:
            reader_claims.fail(tx, listed, said)
        return True

    done = transact(store, work)
    transact(store, lambda tx: drop_leftovers(tx, batch))
    return done


def fail_events(store: Store, claims: Iterable[Claim], errors: Mapping[int, Any]) -> None:
    """Record which events of a micro-batch's claims failed, by offset, instead of what was recorded before."""
    said, listed = reader_outcomes.said(errors), list(claims)
    transact(store, lambda tx: reader_claims.fail(tx, listed, said))


def drop_leftovers(tx: Transaction, batch: MicroBatch) -> None:
    """Drop what lost attempts of this micro-batch staged."""
    rows = tx.rows("query.leftovers", batch=batch.staged_as, now=tx.now(), kept_seconds=STAGED_SECONDS)
    pipelines.drop(tx, [uuid.UUID(str(row.attempt)) for row in rows])


def readers(store: Store, stream: str, group: str) -> list[str]:
    """Return who has ever read this group as a stream, the latest first."""

    def work(tx: Transaction) -> list[str]:
        found = groups.get(tx, stream, group)
        return [row.reader for row in tx.rows("query.readers", group_id=found.group_id)]

    return look(store, work)

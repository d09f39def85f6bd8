"""Heartbeats of many leases at once, answered with what their holder should know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from penstock.log.transact import transact
from penstock.stores.base import Store, Transaction


@dataclass(frozen=True, slots=True)
class Beat:
    """The answer to a heartbeat."""

    lost: frozenset[int] = frozenset()  # leases that are not held any more
    cancel: Mapping[int, Sequence[int]] = field(default_factory=dict)  # by lease: offsets of jobs that should end
    wanted: str | None = None  # what the run of these leases should do: run, quiet or stop
    settling: frozenset[int] = frozenset()  # not extended, because their holder settles them just now


def beat(store: Store, leases: Mapping[int, int], seconds: float) -> Beat:
    """Extend leases, given by id and token, to `seconds` from now."""

    def work(tx: Transaction) -> Beat:
        now = tx.now()
        ids = sorted(leases)
        rows = tx.rows(
            "jobs.beat",
            ids=ids,
            tokens=[leases[one] for one in ids],
            expires_at=now + timedelta(seconds=seconds),
            now=now,
        )
        cancel: dict[int, list[int]] = {}
        for row in tx.rows("jobs.to_cancel", ids=ids):
            cancel.setdefault(row.id, []).append(row.offset)
        wanted = next((row.wanted for row in rows if row.wanted is not None), None)
        settling = frozenset(row.id for row in rows if not row.extended)
        return Beat(frozenset(ids) - {row.id for row in rows}, cancel, wanted, settling)

    return transact(store, work)


def note(store: Store, progress: Mapping[int, tuple[float | None, str | None]]) -> None:
    """Store how far jobs have come, by offset."""

    def work(tx: Transaction) -> None:
        now = tx.now()
        for offset, (done, message) in sorted(progress.items()):
            tx.run("jobs.note", offset=offset, progress=done, message=message, now=now)

    transact(store, work)

"""Where the horizon stands, and who holds it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from penstock.log.transact import look
from penstock.stores.base import Row, Store, Transaction


@dataclass(frozen=True, slots=True)
class Holder:
    """A transaction that appends to this log: nothing above its events is delivered before it ends."""

    pid: int | None
    role: str | None
    application: str | None
    state: str | None
    transaction: str | None  # the name of a prepared one
    started_at: datetime | None


@dataclass(frozen=True, slots=True)
class Horizon:
    """Nothing can still appear below `horizon`; `last` is the last offset that was given out."""

    horizon: int
    last: int
    holders: tuple[Holder, ...]


def horizon(store: Store) -> Horizon:
    """Look where it stands; the ten transactions that have held it for longest."""

    def work(tx: Transaction) -> Horizon:
        last = tx.one("horizon.last")
        assert last is not None
        return Horizon(tx.horizon(int(last.last)), int(last.last), tuple(map(_holder, tx.rows("doctor.holders"))))

    return look(store, work)


def _holder(row: Row) -> Holder:
    return Holder(row.pid, row.role, row.application_name, row.state, row.gid, row.started_at)

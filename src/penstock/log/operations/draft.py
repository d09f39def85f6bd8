"""What changes of an operation with every step, to be written once at its end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from penstock.stores.base import Transaction
from penstock.stores.rows import OperationRow

_SAME = ("state", "phase", "note", "moved_upto", "moved", "returned", "canaries_ended", "rate_at", "next_at")
_TIMES = ("expires_at", "started_at", "ended_at")


@dataclass(slots=True)
class Draft:
    """The changing columns of an operation."""

    state: str
    phase: str
    note: str | None
    moved_upto: int
    moved: int
    returned: int
    canaries_ended: int
    rate_at: datetime | None
    next_at: datetime
    expires_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    canaries: list[int]

    @classmethod
    def of(cls, row: OperationRow) -> Draft:
        """Take them from a locked row."""
        known: dict[str, Any] = {name: getattr(row, name) for name in (*_SAME, *_TIMES)}
        return cls(**known, canaries=orjson.loads(row.canaries))

    def write(self, tx: Transaction, number: int) -> None:
        """Write them."""
        known: dict[str, Any] = {name: getattr(self, name) for name in (*_SAME, *_TIMES)}
        tx.later("operation.write", id=number, canaries=orjson.dumps(self.canaries).decode(), **known)

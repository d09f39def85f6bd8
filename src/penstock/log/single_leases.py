"""Open leases of one event each, many in one transaction: for jobs, and for what a settle keeps."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.core.group import Group
from penstock.core.lease import LeaseId, LeaseRow, Token
from penstock.log.claim_lane import TOKEN_BITS
from penstock.stores.base import Transaction


@dataclass(frozen=True, slots=True)
class Single:
    """One event to lease: as a range of one, or as the row that it has."""

    offset: int
    is_row: bool

    def columns(self) -> dict[str, Any]:
        """Return what its lease says of itself."""
        secret = {"secret": secrets.randbits(TOKEN_BITS)}
        if self.is_row:
            return secret | {"offsets": [self.offset]}
        return secret | {"low": self.offset - 1, "high": self.offset}


@dataclass(frozen=True, slots=True)
class Terms:
    """What leases that are opened together have in common."""

    claimed_by: str
    claimed_at: datetime
    expires_at: datetime
    binding: int
    attempts: int
    replay: int
    run: int | None
    kept_from: int
    kept_at: datetime


def open_each(
    tx: Transaction, group: Group, singles: Sequence[Single], terms: Terms, open_before: Sequence[int]
) -> list[LeaseRow]:
    """Open a lease for every event of a locked group without keys, in their order."""
    assert group.lanes == 1, "a lane with keys has one lease"
    opened = tx.rows(
        "lease.open_each",
        group_id=group.group_id,
        rows=[one.columns() for one in singles],
        open_before=list(open_before),
        claimed_by=terms.claimed_by,
        claimed_at=terms.claimed_at,
        expires_at=terms.expires_at,
        binding=terms.binding,
        attempts=terms.attempts,
        replay=terms.replay,
        run=terms.run,
        kept_from=terms.kept_from,
        kept_at=terms.kept_at,
    )
    ids = sorted((row.id, row.token, row.wanted) for row in opened)
    return [
        LeaseRow(
            LeaseId(lease),
            Token(token),
            group.stream,
            group.group_name,
            group.group_id,
            lane=0,
            lanes=1,
            binding=terms.binding,
            low=None if one.is_row else one.offset - 1,
            high=None if one.is_row else one.offset,
            holes=[],
            offsets=[one.offset] if one.is_row else None,
            members=1,
            attempts=terms.attempts,
            replay=terms.replay,
            claimed_by=terms.claimed_by,
            claimed_at=terms.claimed_at,
            expires_at=terms.expires_at,
            wanted=wanted,
        )
        for one, (lease, token, wanted) in zip(singles, ids, strict=True)
    ]

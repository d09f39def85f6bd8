"""The tally: a running count of the log every so many offsets, so that counts and lag never scan it."""

from __future__ import annotations

from penstock.core.limits import TALLY_EVERY
from penstock.stores.base import Transaction

_BLOCKS_AT_ONCE = 50


def advance(tx: Transaction, blocks: int = _BLOCKS_AT_ONCE) -> int:
    """Count what can no longer change; returns the offset up to which the log is counted."""
    row = tx.one("tally.last")
    before = 0 if row is None else int(row.upto)
    horizon = tx.horizon()
    for _ in range(blocks):
        upto = before + TALLY_EVERY
        if upto > horizon or not tx.run("tally.mark", upto=upto):
            break  # not final yet, or somebody else is counting this block
        tx.run("tally.add", before=before, upto=upto)
        before = upto
    return before

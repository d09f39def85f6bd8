"""The tally: a running count of the log every so many offsets, so that counts and lag never scan it."""

from __future__ import annotations

from penstock.core.limits import TALLY_EVERY
from penstock.stores.base import Transaction

_BLOCKS_AT_ONCE = 50


def advance(tx: Transaction, blocks: int = _BLOCKS_AT_ONCE) -> int:
    """Count what can no longer change; returns how many blocks were added."""
    row = tx.one("tally.last")
    before = 0 if row is None else int(row.upto)
    horizon = tx.horizon()
    added = 0
    while horizon - before >= TALLY_EVERY and added < blocks:
        upto = before + TALLY_EVERY
        if not tx.run("tally.mark", upto=upto):
            break  # somebody else is counting this block
        tx.run("tally.add", before=before, upto=upto)
        before, added = upto, added + 1
    return added

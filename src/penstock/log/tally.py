"""The tally: running counts of the log, so that counts and lag never scan it.

Every so many offsets the log is counted up to a mark. A stream keeps the counts of an earlier mark (a step) only where
it has grown enough since its last one, so the tally grows with the events of a stream and not with marks × streams.
"""

from __future__ import annotations

from penstock.core.limits import TALLY_EVERY, TALLY_GROWTH
from penstock.stores.base import Transaction

_BLOCKS_AT_ONCE = 50


def advance(tx: Transaction, blocks: int = _BLOCKS_AT_ONCE) -> int:
    """Count what can no longer change; returns the offset up to which the log is counted."""
    row = tx.one("tally.last")
    before = 0 if row is None else int(row.upto)
    horizon = tx.horizon()
    if before + TALLY_EVERY > horizon:
        return before
    turn = tx.one("tally.turn")
    if turn is None:
        return before  # somebody else is counting
    before = int(turn.upto)
    for _ in range(blocks):
        upto = before + TALLY_EVERY
        if upto > horizon or not tx.run("tally.mark", upto=upto):
            break  # not final yet, or somebody has just counted this block
        grown = {row.stream for row in tx.rows("tally.add", before=before, upto=upto)}
        if grown:
            tx.run("tally.keep", upto=upto, growth=TALLY_GROWTH, streams=sorted(grown))
        before = upto
    return before

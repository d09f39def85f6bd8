"""The tally: running counts of the log, so that counts and lag never scan it.

Every `TALLY_EVERY` offsets the log is counted up to a mark. A stream keeps its counts at a mark (a step) only if it has
grown enough since its last step, so the tally grows with the events and not with marks × streams.
"""

from __future__ import annotations

from penstock.core.limits import TALLY_EVERY, TALLY_GROWTH
from penstock.stores.base import Transaction

_BLOCKS_AT_ONCE = 50


def advance(tx: Transaction, blocks: int = _BLOCKS_AT_ONCE) -> int:
    """Count up to the horizon, in blocks; returns the offset up to which the log is counted."""
    row = tx.one("tally.last")
    before = 0 if row is None else int(row.upto)
    horizon = tx.horizon()
    if before + TALLY_EVERY > horizon:
        return before
    turn = tx.one("tally.turn")
    if turn is None:
        return before  # another process is counting
    before = int(turn.upto)
    for _ in range(blocks):
        upto = before + TALLY_EVERY
        if upto > horizon or not tx.run("tally.mark", upto=upto):
            break  # not final yet, or just counted by another process
        grown = {row.stream for row in tx.rows("tally.add", before=before, upto=upto)}
        if grown:
            tx.run("tally.keep", upto=upto, growth=TALLY_GROWTH, streams=sorted(grown))
        before = upto
    return before

"""Double the lanes of a group by splitting each in half."""

from __future__ import annotations

from penstock.core.group import Group
from penstock.core.lanes import check_lanes, children, slice_of
from penstock.errors import InFlight, InvalidInput
from penstock.log import audit
from penstock.stores.base import Transaction
from penstock.stores.rows import CursorRow, ReturnedRow


def double_lanes(tx: Transaction, group: Group, by: str) -> int:
    """Split every lane of a locked group in half; returns the new number of lanes.

    Both halves inherit the cursor and the returned ranges.
    """
    lanes = check_lanes(group.lanes * 2)
    if not group.exclusive:
        raise InvalidInput("Only ordered and keyed groups have lanes.")
    if tx.one("group.open_lease", group_id=group.group_id) is not None:
        raise InFlight("The group has open leases; pause it and wait until they end.")
    rows: list[CursorRow] = tx.rows("claim.lanes", group_id=group.group_id, lanes=group.lanes)
    starts = [0] * lanes
    matched = group.matched_before
    for row in rows:
        matched += row.total or 0
        for child in children(row.lane):
            starts[child] = group.starts[row.lane] if row.cursor is None else row.cursor
    returned: list[ReturnedRow] = tx.rows("returned.all", group_id=group.group_id)
    for piece in returned:
        for child in children(piece.lane):
            low, high = slice_of(child, lanes)
            tx.run("returned.split", id=piece.id, lane=child, lanes=lanes, first_bucket=low, last_bucket=high)
        tx.run("claim.drop_returned", id=piece.id)
    tx.run("group.lanes", group_id=group.group_id, lanes=lanes, starts=starts, matched_before=matched)
    audit.record_for(tx, by, "lanes", group, None, {"lanes": lanes})
    return lanes

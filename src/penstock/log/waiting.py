"""PENDING deliveries that an operator names by id, for kill and reschedule."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime

from penstock.core.delivery import State
from penstock.core.group import Group
from penstock.errors import IllegalTransition, InFlight, UnknownEvent
from penstock.stores.base import Row, Transaction

# What is known about a delivery without a row and is copied into its new row.
_SEEN = ("offset", "attempts", "earlier_attempts", "replays", "last_error", "error_code", "error_type", "fingerprint")


def find(tx: Transaction, group: Group, ids: Sequence[uuid.UUID], what: str) -> list[Row]:
    """Return the deliveries with these ids; raise unless all of them are PENDING."""
    found = find_all(tx, group, ids)
    for row in found:
        _require_pending(row, what)
    return found


def find_all(tx: Transaction, group: Group, ids: Sequence[uuid.UUID]) -> list[Row]:
    """Return the deliveries with these ids, in their order; raise `UnknownEvent` if one is missing."""
    rows = tx.rows("operate.find", group_id=group.group_id, stream=group.stream, ids=list(ids))
    found = {row.event_id: row for row in rows}
    for one in ids:
        if one not in found:
            raise UnknownEvent(f"The group {group.group_name!r} on {group.stream!r} has no delivery of {one}.")
    return [found[one] for one in ids]


def with_rows(tx: Transaction, group: Group, found: Sequence[Row], now: datetime) -> list[int]:
    """Give each delivery a row of its own; returns their offsets."""
    new = [row for row in found if not row.has_row]
    if new:
        tx.run(
            "operate.make_rows",
            group_id=group.group_id,
            stream=group.stream,
            group_name=group.group_name,
            rows=[{name: getattr(row, name) for name in _SEEN} for row in new],
            now=now,
        )
        tx.run("operate.leave_returned", group_id=group.group_id, offsets=[row.offset for row in new])
    return sorted(row.offset for row in found)


def _require_pending(row: Row, what: str) -> None:
    if row.state == State.CLAIMED:
        raise InFlight(f"{row.event_id} is CLAIMED by {row.claimed_by}; nothing was changed.")
    if row.state != State.PENDING:
        raise IllegalTransition(f"{row.event_id} is {row.state}, and only a PENDING delivery can be {what}.")

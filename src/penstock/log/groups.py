"""Groups as stored: find one, or lock it."""

from __future__ import annotations

import orjson

from penstock.core.binding import FOREVER, Span
from penstock.core.circuit import Circuit
from penstock.core.group import Group
from penstock.core.retry import Retry
from penstock.errors import UnknownGroup
from penstock.log.transact import look
from penstock.stores.base import Store, Transaction
from penstock.stores.rows import GroupRow


def find(tx: Transaction, stream: str, group_name: str) -> Group | None:
    """Return the group, or None."""
    row = tx.one("group.find", stream=stream, group_name=group_name, lease=None)
    return None if row is None else of(row)


def get(tx: Transaction, stream: str, group_name: str) -> Group:
    """Return the group; raise `UnknownGroup` if there is none."""
    group = find(tx, stream, group_name)
    if group is None:
        raise unknown(stream, group_name)
    return group


def unknown(stream: str, group_name: str) -> UnknownGroup:
    """Make the error for a group that does not exist."""
    return UnknownGroup(f"There is no group {group_name!r} on the stream {stream!r}.")


def locked(tx: Transaction, stream: str, group_name: str) -> Group:
    """Lock the group, so that only this transaction may claim for it or operate on it."""
    names = {"stream": stream, "group_name": group_name}
    while True:
        # The second statement starts when the lock is held, so that it sees what the last holder wrote.
        turns, rows = tx.together(("group.lock", names), ("group.find", {**names, "lease": None}))
        if not rows:
            raise unknown(stream, group_name)
        group = of(rows[0])
        if turns and turns[0].group_id == group.group_id:  # not a group created while this one waited
            return group


def every(tx: Transaction, stream: str | None = None, group_name: str | None = None) -> list[Group]:
    """Return all groups, of one stream or of the log."""
    return [of(row) for row in tx.rows("group.find", stream=stream, group_name=group_name, lease=None)]


def of(row: GroupRow) -> Group:
    """Make a group from a row with its columns and bindings."""
    bound = orjson.loads(row.bindings)
    spans = []
    for position, binding in enumerate(bound):
        low = -1 if position == 0 else binding["from_offset"]
        high = bound[position + 1]["from_offset"] if position + 1 < len(bound) else FOREVER
        if high > low:
            types = None if binding["types"] is None else tuple(binding["types"])
            spans.append(Span(binding["id"], low, high, types, binding["type_regex"], binding["headers"]))
    retry = Retry(row.max_attempts, row.base_seconds, row.factor, row.cap_seconds, row.jitter, row.max_age_seconds)
    return Group(
        row.group_id,
        row.stream,
        row.group_name,
        row.ordering == "key",
        bool(row.keyed),
        row.lanes,
        row.starts,
        row.floor,
        row.matched_before,
        row.on_dead,
        row.lease_seconds,
        retry,
        row.rewinds,
        row.rewound_upto,
        bool(row.paused),
        row.pause_reason,
        row.created_at,
        tuple(spans),
        _circuit(row),
        row.max_in_flight,
        row.rate_per_second,
    )


def _circuit(row: GroupRow) -> Circuit | None:
    if row.circuit_opened_at is None:
        return None
    return Circuit(
        row.circuit_opened_at,
        row.delay_seconds,
        row.probe_at,
        row.last_error,
        row.error_code,
        row.probe,
        row.probe_expires_at,
    )


def listed(store: Store, stream: str | None) -> list[Group]:
    """Return all groups, of one stream or of the log."""
    return look(store, lambda tx: every(tx, stream))

"""How a group stands: its lanes, its open leases, the keys that are held back, and what it wanted when."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import orjson

from penstock.core.group import Group
from penstock.log import groups
from penstock.log.transact import look
from penstock.stores.base import Row, Store, Transaction

LEASES: Final = 100  # shown
KEYS: Final = 50
WAITING: Final = 1_000  # deliveries counted behind each key
BINDINGS: Final = 50


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane: how far it has got, and what came back to it. `behind` is in offsets of the whole log."""

    lane: int
    cursor: int
    behind: int
    returned_ranges: int
    returned_events: int


@dataclass(frozen=True, slots=True)
class OpenLease:
    """Claimed work: a range of offsets, or rows of deliveries that came back one by one."""

    id: int
    lane: int
    kind: str
    members: int
    low: int | None
    high: int | None
    attempts: int
    claimed_by: str
    claimed_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class BlockedKey:
    """A key that is held back by its first unfinished delivery; `waiting` is counted up to `WAITING`."""

    key: str
    lane: int
    offset: int
    event_id: uuid.UUID
    event_type: str
    state: str
    reason: str | None
    attempts: int
    failures: int
    available_at: datetime
    error_code: str | None
    last_error: str | None
    waiting: int


@dataclass(frozen=True, slots=True)
class BindingEntry:
    """What a group has wanted from an offset on."""

    from_offset: int
    types: tuple[str, ...] | None
    headers: Mapping[str, str] | None
    created_at: datetime


def lanes(store: Store, stream: str, group: str) -> list[Lane]:
    """Return the lanes of a group."""
    return _of(store, stream, group, lambda tx, it: [Lane(*row) for row in tx.rows("standing.lanes", **lanes_of(it))])


def leases(store: Store, stream: str, group: str) -> list[OpenLease]:
    """Return the open leases of a group, the oldest first; at most `LEASES`."""
    return _of(
        store, stream, group, lambda tx, it: [OpenLease(*row) for row in tx.rows("standing.leases", **leases_of(it))]
    )


def blocked(store: Store, stream: str, group: str) -> list[BlockedKey]:
    """Return keys that are held back, those with most deliveries behind them first; at most `KEYS` are looked at."""

    def work(tx: Transaction, it: Group) -> list[BlockedKey]:
        return [_key(row) for row in tx.rows("standing.blocked", **blocked_of(it))] if it.ordered else []

    return _of(store, stream, group, work)


def bindings(store: Store, stream: str, group: str) -> list[BindingEntry]:
    """Return what a group wants and wanted, the newest first; at most `BINDINGS`."""

    def work(tx: Transaction, it: Group) -> list[BindingEntry]:
        return [_binding(row) for row in tx.rows("standing.bindings", **bindings_of(it))]

    return _of(store, stream, group, work)


def lanes_of(group: Group) -> dict[str, Any]:
    """Return the parameters of `standing.lanes`."""
    return {"group_id": group.group_id}


def leases_of(group: Group) -> dict[str, Any]:
    """Return the parameters of `standing.leases`."""
    return {"group_id": group.group_id, "limit": LEASES}


def blocked_of(group: Group) -> dict[str, Any]:
    """Return the parameters of `standing.blocked`."""
    return {"group_id": group.group_id, "halts": group.on_dead == "halt", "limit": KEYS, "most": WAITING}


def bindings_of(group: Group) -> dict[str, Any]:
    """Return the parameters of `standing.bindings`."""
    return {"group_id": group.group_id, "limit": BINDINGS}


def _of(store: Store, stream: str, group: str, work: Callable[[Transaction, Group], list[Any]]) -> list[Any]:
    return look(store, lambda tx: work(tx, groups.get(tx, stream, group)))


def _key(row: Row) -> BlockedKey:
    return BlockedKey(
        row.key,
        row.lane,
        row.offset,
        row.event_id,
        row.event_type,
        row.state,
        row.reason,
        row.attempts,
        row.failures,
        row.available_at,
        row.error_code,
        row.last_error,
        int(row.waiting),
    )


def _binding(row: Row) -> BindingEntry:
    types = orjson.loads(row.types) if isinstance(row.types, str) else row.types
    headers = orjson.loads(row.headers) if isinstance(row.headers, str) else row.headers
    return BindingEntry(row.from_offset, None if types is None else tuple(types), headers, row.created_at)

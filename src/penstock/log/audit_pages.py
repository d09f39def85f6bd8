"""Pages of the audit: who did what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import orjson

from penstock.core.event import check_name
from penstock.errors import InvalidInput
from penstock.log import checks
from penstock.log.transact import look
from penstock.stores.base import Row, Store

NEWEST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One operator action."""

    id: int
    at: datetime
    by: str
    action: str
    stream: str | None
    group: str | None
    count: int | None
    detail: Mapping[str, Any]


def page(store: Store, stream: str | None, group: str | None, before: int | None, limit: int) -> list[AuditEntry]:
    """Return actions, the newest first, below the id `before`."""
    params = page_of(stream, group, before, limit)
    return [_entry(row) for row in look(store, lambda tx: tx.rows("audit.page", **params))]


def page_of(stream: str | None, group: str | None, before: int | None, limit: int) -> dict[str, Any]:
    """Return the parameters of `audit.page`."""
    if group is not None and stream is None:
        raise InvalidInput("A group is named with its stream.")
    return {
        "stream": None if stream is None else check_name(stream, "stream"),
        "group_name": None if group is None else check_name(group, "group"),
        "before": NEWEST if before is None else min(checks.count(before, "before"), NEWEST),
        "limit": checks.count(limit, "limit"),
    }


def _entry(row: Row) -> AuditEntry:
    detail = {} if row.detail is None else orjson.loads(row.detail)
    return AuditEntry(row.id, row.happened_at, row.by, row.action, row.stream, row.group_name, row.count, detail)

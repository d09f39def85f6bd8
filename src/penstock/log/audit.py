"""The audit: one row per operator action."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from penstock.core.group import Group
from penstock.core.observe import Operated
from penstock.stores.base import Transaction


def record(
    tx: Transaction,
    by: str,
    action: str,
    *,
    stream: str | None = None,
    group: str | None = None,
    count: int | None = None,
    detail: Mapping[str, Any],
) -> None:
    """Write one audit row."""
    text = orjson.dumps(dict(detail), default=str).decode()
    tx.run("audit.add", by=by, action=action, stream=stream, group_name=group, count=count, detail=text, now=tx.now())
    tx.observed.append(Operated(action, stream, group, count, by))


def record_for(
    tx: Transaction, by: str, action: str, group: Group, count: int | None, detail: Mapping[str, Any]
) -> None:
    """Write the row of an action on a group and wake idle workers, which may have work now."""
    record(tx, by, action, stream=group.stream, group=group.group_name, count=count, detail=detail)
    tx.wake()


def because(reason: str | None) -> dict[str, str]:
    """Return the part of a detail that says why, if anybody said it."""
    return {} if reason is None else {"reason": reason}

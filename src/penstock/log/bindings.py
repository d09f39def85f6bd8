"""Bindings: which events a group receives, from an offset on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson

from penstock.core import codec
from penstock.core.binding import check_patterns, globs_of, regex_of
from penstock.log import audit, checks, groups
from penstock.log.transact import transact
from penstock.stores.base import Store, Transaction
from penstock.stores.rows import CursorRow


def bind(
    store: Store,
    stream: str,
    group: str,
    types: Sequence[str] | None,
    headers: Mapping[str, str] | None,
    by: str | None,
) -> int:
    """Add a binding that applies to later events only; returns the offset above which it applies."""
    known, author = check_patterns(types), checks.author(by)
    codec.encode_headers(headers)
    return transact(store, lambda tx: _bind(tx, stream, group, known, headers or None, author))


def _bind(
    tx: Transaction,
    stream: str,
    group_name: str,
    types: tuple[str, ...] | None,
    headers: Mapping[str, str] | None,
    by: str,
) -> int:
    group = groups.locked(tx, stream, group_name)
    horizon = tx.horizon()
    # The horizon may briefly be below a cursor; claimed events keep the binding they were claimed with.
    rows: list[CursorRow] = tx.rows("claim.lanes", group_id=group.group_id, lanes=group.lanes)
    cursors = [group.starts[row.lane] if row.cursor is None else row.cursor for row in rows]
    begin = max(horizon, *cursors)
    add(tx, group.group_id, begin, types, headers)
    detail = {"types": list(types) if types else None, "headers": dict(headers or {})}
    audit.record_for(tx, by, "bind", group, None, detail)
    return begin


def add(
    tx: Transaction,
    group_id: int,
    from_offset: int,
    types: tuple[str, ...] | None,
    headers: Mapping[str, str] | None,
) -> None:
    """Store a binding that applies above an offset."""
    row = tx.one(
        "group.bind",
        group_id=group_id,
        from_offset=from_offset,
        types=None if types is None else list(types),
        type_regex=regex_of(types),
        headers=None if not headers else orjson.dumps(dict(headers), option=orjson.OPT_SORT_KEYS).decode(),
        now=tx.now(),
    )
    assert row is not None
    for glob in globs_of(types or ()):
        tx.run("group.bind_glob", binding=row.id, glob=glob.glob, min_dots=glob.min_dots, max_dots=glob.max_dots)

"""Keyed state: values that belong to an ordering key of a group, versioned, written only by a settle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import orjson

from penstock.core import codec
from penstock.core.event import check_key
from penstock.errors import InvalidInput, StateConflict, StateNeedsKey
from penstock.log import checks, groups
from penstock.log.transact import look
from penstock.stores.base import Store, Transaction

_ANY = ""  # any name of a key that was read: names that were not found have version 0


@dataclass(frozen=True, slots=True)
class WithTtl:
    """A value that expires after `ttl_seconds`."""

    value: Any
    ttl_seconds: float


def read(
    tx: Transaction, group_id: int, keys: Iterable[str], now: datetime
) -> tuple[dict[str, dict[str, Any]], dict[tuple[str, str], int]]:
    """Return values by key and name, and the versions that the settle compares."""
    values: dict[str, dict[str, Any]] = {}
    keys = sorted(keys)
    versions: dict[tuple[str, str], int] = {(key, _ANY): 0 for key in keys}
    for row in tx.rows("state.read", group_id=group_id, keys=keys):
        versions[row.key, row.name] = row.version
        if row.expires_at is None or row.expires_at > now:
            values.setdefault(row.key, {})[row.name] = orjson.loads(row.value)
    return values, versions


def of_key(store: Store, stream: str, group: str, key: str) -> dict[str, Any]:
    """Return the state of one key, for inspection."""
    known = checks.required_key(key, "key")

    def work(tx: Transaction) -> dict[str, Any]:
        found, _ = read(tx, groups.get(tx, stream, group).group_id, [known], tx.now())
        return found.get(known, {})

    return look(store, work)


def write(
    tx: Transaction,
    group_id: int,
    state: Mapping[str, Mapping[str, Any]],
    versions: Mapping[tuple[str, str], int],
    now: datetime,
) -> dict[tuple[str, str], int]:
    """Store values, keys in sorted order so that two settles never deadlock; None removes a value.

    Raises `StateConflict` unless every (key, name) that was read still has the same version. Returns new versions.
    """
    entries = [
        _entry(key, name, value, versions, now)
        for key, values in sorted(state.items(), key=lambda item: str(item[0]))
        for name, value in sorted(values.items())
    ]
    if not entries:
        return {}
    compared = [entry for entry in entries if entry["expected"] is not None]
    blind = [entry for entry in entries if entry["expected"] is None]
    if compared and tx.run("state.write_compared", group_id=group_id, rows=compared, now=now) != len(compared):
        raise StateConflict
    if blind:
        tx.run("state.write_blind", group_id=group_id, rows=blind, now=now)
    return {(entry["key"], entry["name"]): entry["expected"] + 1 for entry in compared}


def encoded(key: Any, name: Any, value: Any) -> str:
    """Return a value as JSON; `InvalidInput` if it cannot be."""
    try:
        text = orjson.dumps(value).decode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"The state {name!r} of {key!r} cannot be encoded as JSON: {error}.") from error
    if "null" in text and not codec.is_finite(value):
        raise InvalidInput(
            f"The state {name!r} of {key!r} contains NaN or an infinite number, which JSON cannot represent."
        )
    return text


def _entry(key: Any, name: Any, value: Any, versions: Mapping[tuple[str, str], int], now: datetime) -> dict[str, Any]:
    if key is None or key == "":
        raise StateNeedsKey
    check_key(key, "state key")
    check_key(name, "state name")
    expires_at = None
    if isinstance(value, WithTtl):
        expires_at = now + timedelta(seconds=value.ttl_seconds)
        value = value.value
    text = encoded(key, name, value)
    # A removed value stays as an expired null, so that its version keeps growing.
    return {
        "key": key,
        "name": name,
        "value": text,
        "expires_at": now if value is None else expires_at,
        "expected": versions.get((key, name), versions.get((key, _ANY))),
    }

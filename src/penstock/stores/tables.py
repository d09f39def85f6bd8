"""Tables of the user's: what both databases have in common when rows are moved into one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final

import orjson

from penstock.core.codec import is_finite
from penstock.core.target import Target
from penstock.errors import InvalidPayload

THERE: Final = "penstock_there"  # in a statement: the row that is there already


def quoted(table: str) -> str:
    """The name of a table, perhaps with its schema, as a statement takes it."""
    return ".".join(f'"{part}"' for part in table.split("."))


def listed(columns: Sequence[str]) -> str:
    """Columns as a statement takes them; their names hold no quotes."""
    return ", ".join(f'"{name}"' for name in columns)


def insert_into(target: Target) -> str:
    """The beginning of an INSERT."""
    return f"insert into {quoted(target.table)} as {THERE} ({listed(target.columns)})"


def on_conflict(target: Target) -> str:
    """What happens to a row that is there; empty if rows are only appended."""
    if not target.keys:
        return ""
    others = [name for name in target.columns if name not in target.keys]
    changes = ", ".join(f'"{name}" = {_sum(name) if name in target.add else _new(name)}' for name in others)
    newer = f" where {_is_newer(target.version)}" if target.version is not None else ""
    return f" on conflict ({listed(target.keys)}) do " + (f"update set {changes}{newer}" if changes else "nothing")


def _new(name: str) -> str:
    return f'excluded."{name}"'


def _sum(name: str) -> str:
    """Like SQL's own sum, it passes over nulls."""
    there, new = f'{THERE}."{name}"', _new(name)
    return f"coalesce({there} + {new}, {there}, {new})"


def _is_newer(version: str) -> str:
    there, new = f'{THERE}."{version}"', _new(version)
    return f"{there} < {new} or ({there} is null and {new} is not null)"


def as_json(value: Any, plain: Callable[[bytes], str]) -> bytes:
    """A value of a row as JSON; `plain` says how bytes are written. `InvalidPayload` if JSON has nothing like it."""

    def other(found: Any) -> str:
        if isinstance(found, bytes):
            return plain(found)
        if isinstance(found, Decimal):
            return str(found)
        raise TypeError(f"{type(found).__name__} has no form in JSON")

    try:
        return orjson.dumps(value, default=other, option=orjson.OPT_NON_STR_KEYS)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidPayload(f"A row cannot be brought into the table: {error}.") from error


def check_nested(value: Any) -> None:
    """Refuse a list or mapping in which JSON would silently replace a number by null."""
    if isinstance(value, list | dict) and not is_finite(value):
        raise InvalidPayload("A row has a NaN or an infinite number in a list, struct or map, and JSON has neither.")

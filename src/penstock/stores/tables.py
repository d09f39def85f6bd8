"""Tables of the user's: what both databases have in common when rows are moved into one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final

import orjson

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


def not_finite(value: Any) -> bool:
    """Whether a value is an infinity or NaN, which JSON does not have."""
    return isinstance(value, float) and value - value != 0


def as_json(columns: Sequence[str], values: Sequence[Sequence[Any]], plain: Callable[[bytes], str]) -> list[bytes]:
    """Rows, given column by column, as JSON objects; `plain` says how bytes are written."""

    def other(value: Any) -> str:
        if isinstance(value, bytes):
            return plain(value)
        if isinstance(value, Decimal):
            return str(value)
        raise TypeError(f"{type(value).__name__} has no form in JSON")

    rows = (dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True))
    try:
        return [orjson.dumps(row, default=other, option=orjson.OPT_NON_STR_KEYS) for row in rows]
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidPayload(f"A row cannot be brought into the table: {error}.") from error

"""Tables of the user's: what both databases have in common when rows are moved into one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import orjson

from penstock.errors import InvalidPayload


def quoted(table: str) -> str:
    """The name of a table, perhaps with its schema, as a statement takes it."""
    return ".".join(f'"{part}"' for part in table.split("."))


def listed(columns: Sequence[str]) -> str:
    """Columns as a statement takes them; their names hold no quotes."""
    return ", ".join(f'"{name}"' for name in columns)


def on_conflict(columns: Sequence[str], keys: Sequence[str]) -> str:
    """What an upsert by these keys does with a row that is there."""
    others = ", ".join(f'"{name}" = excluded."{name}"' for name in columns if name not in keys)
    return f"on conflict ({listed(keys)}) do " + (f"update set {others}" if others else "nothing")


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

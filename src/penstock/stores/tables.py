"""Tables of the user's: what both databases have in common when rows are moved into one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final

from penstock.core.target import Target

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


def as_text(value: Any, plain: Callable[[bytes], str]) -> str:
    """A value that JSON does not have; `plain` says how bytes are written."""
    if isinstance(value, bytes):
        return plain(value)
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")

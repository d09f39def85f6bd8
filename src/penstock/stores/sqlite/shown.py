"""Statements of SQLite for people to run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.stores import shown
from penstock.stores.sqlite.values import encode


def written(block: str, params: Mapping[str, Any]) -> str:
    """Write parameters into a statement."""
    return shown.named(block, params, _literal)


def _literal(value: Any) -> str:
    stored = encode(value)
    if stored is None:
        return "null"
    if isinstance(stored, bool):
        return str(int(stored))
    return str(stored) if isinstance(stored, int | float) else shown.quoted(str(stored))

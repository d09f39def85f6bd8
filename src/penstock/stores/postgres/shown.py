"""Statements of PostgreSQL for people to run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from penstock.stores import shown


def written(block: str, params: Mapping[str, Any]) -> str:
    """Write parameters into a statement."""
    return shown.pyformat(block, params, _literal)


def _literal(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, datetime):
        return f"timestamptz {shown.quoted(value.isoformat())}"
    if isinstance(value, list | tuple):
        return f"array[{', '.join(_literal(one) for one in value)}]"
    return str(value) if isinstance(value, int | float) else shown.quoted(str(value))

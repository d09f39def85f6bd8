"""Statements for people: a named block with its parameters written into it, to be copied and run."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

_PYFORMAT = re.compile(r"%\((\w+)\)s|%%")
_NAMED = re.compile(r"(?<![:\w]):(\w+)")


def pyformat(block: str, params: Mapping[str, Any], literal: Callable[[Any], str]) -> str:
    """Write parameters into a statement that names them `%(name)s`."""
    return _tidy(_PYFORMAT.sub(lambda found: "%" if found[1] is None else literal(params[found[1]]), block))


def named(block: str, params: Mapping[str, Any], literal: Callable[[Any], str]) -> str:
    """Write parameters into a statement that names them `:name`."""
    return _tidy(_NAMED.sub(lambda found: literal(params[found[1]]), block))


def quoted(text: str) -> str:
    """Return text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def _tidy(sql: str) -> str:
    return textwrap.dedent(sql).strip()

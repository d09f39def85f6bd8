"""Named SQL blocks out of `.sql` files: `-- name: verb.step`, one line of description, the statement."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\S+)\s*$", re.MULTILINE)
_INDEX = re.compile(r"create (?:unique )?index (?:if not exists )?(\w+)")
SCHEMA_RULE = re.compile(r"[a-z_][a-z0-9_]{0,40}\Z")


@cache
def load(dialect: str, schema: str = "penstock") -> dict[str, str]:
    """Every block of a dialect by name, for a schema of that name."""
    blocks: dict[str, str] = {}
    for file in sorted(files("penstock.stores").joinpath(dialect, "sql").iterdir(), key=lambda path: path.name):
        parts = _NAME.split(file.read_text(encoding="utf-8"))
        for name, text in zip(parts[1::2], parts[2::2], strict=True):
            assert name not in blocks, f"two blocks are called {name}"
            blocks[name] = in_schema(_without_comments(text), schema)
    return blocks


def _without_comments(text: str) -> str:
    """The statement alone: a comment may say `:name` or `%` without meaning a parameter."""
    return "\n".join(line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("--"))


@cache
def migrations(dialect: str, schema: str = "penstock") -> list[tuple[int, str, str]]:
    """The numbered migrations of a dialect: number, name, text."""
    found = []
    for file in sorted(files("penstock.stores").joinpath(dialect, "migrations").iterdir(), key=lambda path: path.name):
        if file.name.endswith(".sql"):
            found.append((int(file.name[:4]), file.name[:-4], in_schema(file.read_text(encoding="utf-8"), schema)))
    return found


def indexes(dialect: str, schema: str = "penstock") -> set[str]:
    """The names of all indexes that the migrations create."""
    return {name for *_, text in migrations(dialect, schema) for name in _INDEX.findall(text)}


def in_schema(text: str, schema: str) -> str:
    """The files are written for the schema `penstock`; another name is put in its place."""
    if schema == "penstock":
        return text
    return re.sub(r"(?<![A-Za-z_])penstock\.", f"{schema}.", re.sub(r"\bschema penstock\b", f"schema {schema}", text))

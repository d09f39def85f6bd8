"""Named SQL blocks out of `.sql` files: `-- name: verb.step`, one line of description, the statement.

A piece of a statement that stands in several blocks is an include: `-- include: name(a, b)` in `includes.sql`, one
line of description, the text. `{{name(e., r)}}` in a block stands for it, with `e.` for `{{a}}` and `r` for `{{b}}`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import LiteralString, NamedTuple

_NAME = re.compile(r"^-- name: (\S+)\s*$", re.MULTILINE)
_INCLUDE = re.compile(r"^-- include: (\w+)(?:\((.*)\))?\s*$", re.MULTILINE)
_USE = re.compile(r"\{\{(\w+)(?:\(([^{}]*)\))?\}\}")
_INCLUDES = "includes.sql"
_INDEX = re.compile(
    r"^create (?:unique )?index (?:if not exists )?(?P<created>\w+)[^;]*"
    r"|^drop index if exists (?:\w+\.)?(?P<dropped>\w+)",
    re.MULTILINE,
)
SCHEMA_RULE = re.compile(r"[a-z_][a-z0-9_]{0,40}\Z")


@cache
def load(dialect: str, schema: str = "penstock") -> dict[str, LiteralString]:
    """Every block of a dialect by name, for a schema of that name."""
    folder = files("penstock.stores").joinpath(dialect, "sql")
    texts = {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir()}
    # Literal, for all of it stands in files of this package, and the schema's name has passed its rule.
    return {name: in_schema(text, schema) for name, text in assemble(texts).items()}


def assemble(texts: dict[str, str]) -> dict[str, str]:
    """The blocks of these files by name, with their includes in place. `ValueError` if they do not fit together."""
    includes = Includes(texts.get(_INCLUDES, ""))
    blocks: dict[str, str] = {}
    for file in sorted(texts.keys() - {_INCLUDES}):
        parts = _NAME.split(texts[file])
        for name, text in zip(parts[1::2], parts[2::2], strict=True):
            if name in blocks:
                raise ValueError(f"two blocks are called {name}")
            blocks[name] = includes.expand(_without_comments(text))
    if includes.unused:
        raise ValueError(f"nobody uses the includes {', '.join(sorted(includes.unused))}")
    return blocks


class _Fragment(NamedTuple):
    params: list[str]
    text: str


class Includes:
    """The fragments of a dialect, and which of them nobody has used so far."""

    def __init__(self, text: str) -> None:
        parts = _INCLUDE.split(text)
        self._fragments: dict[str, _Fragment] = {}
        for name, params, body in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
            if name in self._fragments:
                raise ValueError(f"two includes are called {name}")
            self._fragments[name] = _Fragment(_split(params), _without_comments(body).strip())
        self.unused = {*self._fragments}

    def expand(self, text: str, inside: tuple[str, ...] = ()) -> str:
        """The text with every include in place, and what they include themselves."""

        def fragment(use: re.Match[str]) -> str:
            name, given = use[1], _split(use[2])
            if name not in self._fragments:
                raise ValueError(f"there is no include {name}")
            if name in inside:
                raise ValueError(f"the include {name} includes itself: {' → '.join([*inside, name])}")
            params, body = self._fragments[name]
            if len(given) != len(params):
                raise ValueError(f"the include {name} takes {len(params)} arguments, not {len(given)}")
            self.unused.discard(name)
            for param, value in zip(params, given, strict=True):
                body = body.replace(f"{{{{{param}}}}}", value)
            return self.expand(body, (*inside, name))

        return _USE.sub(fragment, text)


def _split(listed: str | None) -> list[str]:
    """What stands in the brackets behind a name; `()` is one empty argument, no brackets are none."""
    return [] if listed is None else [one.strip() for one in listed.split(",")]


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
    return {*index_statements(dialect, schema)}


@cache
def index_statements(dialect: str, schema: str = "penstock") -> Mapping[str, str]:
    """The statement that creates each index which the migrations leave."""
    found: dict[str, str] = {}
    for *_, text in migrations(dialect, schema):
        for one in _INDEX.finditer(text):
            if one["dropped"]:
                found.pop(one["dropped"], None)
            else:
                found[one["created"]] = one[0].strip()
    return found


@cache
def percent(sql: str) -> str:
    """A statement in neutral form (`:name`) with the placeholders of psycopg and Django: `%(name)s`."""
    return re.sub(r"(?<![:\w]):(\w+)", r"%(\1)s", sql)


def in_schema(text: str, schema: str) -> str:
    """The files are written for the schema `penstock`; another name is put in its place."""
    if schema == "penstock":
        return text
    return re.sub(r"(?<![A-Za-z_])penstock\.", f"{schema}.", re.sub(r"\bschema penstock\b", f"schema {schema}", text))

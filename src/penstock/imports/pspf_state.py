"""PSPF's state in SQLite: the table `kv_store`, as keyed state of the group that takes it over."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from penstock.core.event import check_key
from penstock.core.limits import STATE_BYTES
from penstock.errors import InvalidInput, InvalidSource, MissingDependency
from penstock.log.keyed_state import WithTtl, encoded

FORMATS = ("json", "msgpack")
PATTERN = "{key}"
NAME = "value"  # of a value whose key names none
_PAGE = 1_000
_FOR_EVER = 1_000 * 365 * 86_400  # seconds: a time beyond them may be in no calendar
Values = dict[str, dict[str, Any]]


class StateFile:
    """A file of PSPF's state store, and how its keys are read: `{key}:{name}` is an ordering key and a name."""

    def __init__(self, path: str, pattern: str = PATTERN, encoding: str = FORMATS[0]) -> None:
        if encoding not in FORMATS:
            raise InvalidInput(f"The format of state is one of {', '.join(FORMATS)}, not {encoding!r}.")
        self._path = Path(path)
        self._pattern = _compiled(pattern)
        self._decode = json.loads if encoding == "json" else _msgpack()
        self.stored = self.skipped = 0
        if not self._path.is_file():
            raise InvalidSource(f"There is no file {path}.")

    def pages(self) -> Iterator[Values]:
        """Yield values by ordering key and name; what cannot be one, or has expired, is counted as skipped."""
        self.stored = self.skipped = 0
        with closing(self._open()) as file:
            try:
                columns = [row[1] for row in file.execute("pragma table_info(kv_store)")]
                if not {"key", "value"} <= {*columns}:
                    raise InvalidSource(f"{self._path} has no table kv_store with key and value.")
                expiry = "expiry" if "expiry" in columns else "null"
                found = file.execute(f"select key, value, {expiry} from kv_store order by key")
                while page := found.fetchmany(_PAGE):
                    yield self._page(page)
            except sqlite3.Error as error:
                raise InvalidSource(f"{self._path} cannot be read: {error}.") from error

    def _open(self) -> sqlite3.Connection:
        try:
            file = sqlite3.connect(f"{self._path.resolve().as_uri()}?mode=ro", uri=True)
        except sqlite3.Error as error:
            raise InvalidSource(f"{self._path} cannot be opened: {error}.") from error
        file.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")  # what is no text is skipped, alone
        return file

    def _page(self, rows: list[tuple[Any, Any, Any]]) -> Values:
        values: Values = {}
        for key, raw, expiry in rows:
            try:
                where, name, value = self._value(key, raw, expiry)
            except (ValueError, TypeError, RecursionError, InvalidInput):
                self.skipped += 1
                continue
            values.setdefault(where, {})[name] = value
            self.stored += 1
        return values

    def _value(self, key: Any, raw: Any, expiry: Any) -> tuple[str, str, Any]:
        """Return ordering key, name and value; raise if it cannot be state."""
        parts = self._pattern.fullmatch(str(key))
        if parts is None or raw is None or len(raw) > STATE_BYTES:
            raise ValueError(key)
        where, name = parts["key"], parts.groupdict().get("name", NAME)
        check_key(where, "state key")
        check_key(name, "state name")
        value = self._decode(raw)
        if value is None:
            raise ValueError(key)
        encoded(where, name, value)
        if expiry is None:
            return where, name, value
        left = float(expiry) - time.time()
        if not left > 0:  # nor is it a number
            raise ValueError(key)
        return where, name, WithTtl(value, left) if left < _FOR_EVER else value


def _compiled(pattern: str) -> re.Pattern[str]:
    if pattern.count("{key}") != 1 or pattern.count("{name}") > 1:
        raise InvalidInput(f"--state-key {pattern!r} has to name {{key}} once, and may name {{name}} once.")
    text = re.escape(pattern).replace(r"\{key\}", "(?P<key>.+)").replace(r"\{name\}", "(?P<name>.+)")
    return re.compile(text, re.DOTALL)


def _msgpack() -> Any:
    try:
        import msgpack
    except ImportError as error:
        raise MissingDependency("To read state in MessagePack: pip install msgpack.") from error
    return lambda raw: msgpack.unpackb(raw, raw=False)

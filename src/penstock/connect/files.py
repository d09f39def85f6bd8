"""`Files`: ingest the rows of files that appear in a folder, each file once."""

from __future__ import annotations

import os
import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import orjson

from penstock.connect.entry_fields import with_headers
from penstock.connect.source_options import check_positive, check_source_name, check_text_option
from penstock.core import codec
from penstock.core.entry import Entry
from penstock.core.event import check_name
from penstock.errors import InvalidSource

KINDS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv", ".parquet": "parquet"}
_PASSWORD = re.compile(r"[^/]*://[^/]*:[^/]*@")
_OURS = ("id", "type", "stream", "offset", "content_type")  # what every line of `JsonLines` has


class Files:
    """The rows of the files in a folder, or of those that fit a pattern, read by Spark wherever Spark can read.

    A file is taken once, by its path, when it is first seen: let it appear whole, by a rename. A row of CSV (with a
    header) or Parquet becomes a JSON object; a line of JSON stays as it is, and what `JsonLines` wrote becomes the same
    event again. Names that begin with `.` or `_` are passed over. `kind` is "jsonl", "csv" or "parquet"; default: what
    the path ends with. `type` is the type of events whose rows name none; default: `file.row`. The folder is
    looked at every `poll_seconds`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        kind: str | None = None,
        type: str | None = None,
        name: str | None = None,
        poll_seconds: float = 5.0,
    ) -> None:
        self.path = check_text_option(os.fspath(path) if isinstance(path, os.PathLike) else path, "path")
        if _PASSWORD.match(self.path):
            raise InvalidSource("The path has a password in it: give it to Spark, in the settings of the file system.")
        self.kind = kind or KINDS.get(os.path.splitext(self.path.rstrip("*/"))[1].lower(), "")
        if self.kind not in KINDS.values():
            raise InvalidSource(f'kind is "jsonl", "csv" or "parquet", not {kind!r}; {self.path!r:.80} does not tell.')
        self.poll_seconds = check_positive(poll_seconds, "poll_seconds", 86_400)
        self.name = check_source_name(name) or f"files {self.path}"
        self._type = check_name(type if type is not None else "file.row", "type")

    def __repr__(self) -> str:
        return f"<Files {self.name}>"

    def open(self, ingests: Any) -> NoReturn:
        """Files are read by Spark: see `penstock.spark.files`."""
        raise InvalidSource("Files are ingested by `penstock ingest`, which starts Spark.")

    def fields_of(self, entry: Entry) -> Mapping[str, Any]:
        """Return the event of a row."""
        assert entry.value is not None, "a row has a value"
        row = orjson.loads(entry.value)  # what is no JSON is rejected
        if isinstance(row, dict) and all(name in row for name in _OURS):
            return _event_of(row, entry.value)
        return {"payload": entry.value, "content_type": codec.JSON, "type": self._type}


def _event_of(row: dict[str, Any], line: bytes) -> dict[str, Any]:
    """Return the event that a line of `JsonLines` was written of."""
    body = _body_in(line, row) if "payload" in row else b64decode(row["payload_base64"], validate=True)
    return {
        "payload": body,
        "content_type": row["content_type"],
        "type": row["type"],
        "event_id": row["id"],
        "ordering_key": row.get("key"),
        **with_headers([*_headers(row.get("headers") or {})]),
    }


def _body_in(line: bytes, row: dict[str, Any]) -> bytes:
    """Return the payload as it stands at the end of a line: decoding would round long numbers."""
    _, found, after = line.partition(b'"content_type":' + orjson.dumps(row["content_type"]) + b',"payload":')
    body = after.rstrip()[:-1]
    try:
        exact = bool(found) and orjson.loads(body) == row["payload"]
    except ValueError:
        exact = False
    return body if exact else orjson.dumps(row["payload"])


def _headers(given: Mapping[str, Any]) -> Iterator[tuple[str, str | bytes]]:
    """Yield the pairs that `JsonLines` wrote: a name that occurs twice has a list, and bytes are in base64."""
    for name, values in given.items():
        for value in values if isinstance(values, list) else [values]:
            yield name, b64decode(value["base64"], validate=True) if isinstance(value, dict) else value

"""A target that is a file of the tests' own: threads and forked children write to it."""

from __future__ import annotations

import base64
import fcntl
import json
from pathlib import Path
from typing import Any

from penstock.connect import Message
from penstock.testing import Received


def _text(value: str | bytes) -> Any:
    return value if isinstance(value, str) else {"bytes": base64.b64encode(value).decode()}


class JsonFile:
    """Everything of every message, one line each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def append(self, message: Message, **changed: Any) -> None:
        """Write a message, with some fields changed."""
        fields = {
            "id": message.id,
            "payload": base64.b64encode(changed.pop("payload", message.payload)).decode(),
            "headers": [[name, _text(value)] for name, value in changed.pop("headers", message.headers)],
            "key": message.key,
            "type": message.type,
            "content_type": message.content_type,
            **changed,
        }
        with self.path.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(json.dumps(fields).encode() + b"\n")

    def received(self) -> list[Received]:
        """All messages so far."""
        found = []
        for line in self.path.read_bytes().splitlines():
            row = json.loads(line)
            row["payload"] = base64.b64decode(row["payload"])
            row["headers"] = [
                (name, base64.b64decode(value["bytes"]) if isinstance(value, dict) else value)
                for name, value in row["headers"]
            ]
            found.append(Received(**{name: row[name] for name in row if name != "more"}, raw=line))
        return found

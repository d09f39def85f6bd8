"""`JsonLines`: one JSON object per line, in a file or on stdout."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import orjson

from penstock.connect.encoded import as_json, base64_text, text_headers
from penstock.declare.publisher import Message, Result

_TAIL = 64 * 1024  # read at once while looking for the end of the last whole line


class JsonLines:
    """Appends messages to a file (`-`: stdout), whole lines only, and syncs it to the disk before they are PUBLISHED.

    Several processes may write to one file. A line that a crash cut off is removed by the next write; its event was
    not PUBLISHED, and comes again.
    """

    batch = 10_000

    def __init__(self, path: str | os.PathLike[str], *, topic: str | None = None, sync: bool = True) -> None:
        self._path = Path(path)
        self._sync = sync
        self._lock = threading.Lock()
        self.topic = topic
        self.target = "stdout" if str(path) == "-" else str(path)

    def publish(self, messages: Sequence[Message]) -> Sequence[Result] | None:
        """Write all of them, or none."""
        text = b"".join(line(message) for message in messages)
        if str(self._path) == "-":
            with self._lock:
                sys.stdout.buffer.write(text)
                sys.stdout.flush()
            return None
        try:
            with self._lock, self._path.open("ab", buffering=0) as file:
                self._append(file, text)
        except OSError as error:
            code = errno.errorcode.get(error.errno or 0, "os_error")
            return [Result.unavailable(code, f"{self.target}: {error.strerror}")] * len(messages)
        return None

    def _append(self, file: io.FileIO, text: bytes) -> None:
        fcntl.flock(file, fcntl.LOCK_EX)  # until it is closed
        start = _end_of_lines(self._path)
        os.ftruncate(file.fileno(), start)
        try:
            rest = memoryview(text)
            while rest:
                rest = rest[file.write(rest) :]
            if self._sync:
                os.fsync(file.fileno())
        except OSError:
            os.ftruncate(file.fileno(), start)
            raise


def line(message: Message) -> bytes:
    """Return a message as one line."""
    body = as_json(message, one_line=True)
    fields = {
        "id": message.id,
        "type": message.type,
        "stream": message.stream,
        "offset": message.offset,
        "topic": message.topic,
        "key": message.key,
        "headers": text_headers(message),
        "created_at": message.created_at,
        "content_type": message.content_type,
        **({"payload_base64": base64_text(message.payload)} if body is None else {"payload": body}),
    }
    return orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)


def _end_of_lines(path: Path) -> int:
    """Return where the last whole line of a file ends."""
    with path.open("rb") as file:
        place = file.seek(0, os.SEEK_END)
        while place:
            start = max(0, place - _TAIL)
            file.seek(start)
            found = file.read(place - start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            place = start
        return 0

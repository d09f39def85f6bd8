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
from typing import Any

import orjson

from penstock.connect.encoded import as_json, base64_text, text_headers
from penstock.connect.target_options import check_name, check_path
from penstock.declare.publisher import Message, Result

_TAIL = 64 * 1024  # read at once while looking for the end of the last whole line


class JsonLines:
    """Appends messages to a file (`-`: stdout), whole lines only, and syncs it to the disk before they are PUBLISHED.

    Several processes may write to one file. A line that a crash cut off is removed by the next write; its event was
    not PUBLISHED, and comes again.
    """

    batch = 10_000

    def __init__(self, path: str | os.PathLike[str], *, topic: str | None = None, sync: bool = True) -> None:
        self._path = Path(check_path(path, "path"))
        self._sync = sync
        self._lock = threading.Lock()
        self._torn = False  # whether half a line may be on stdout
        self.topic = check_name(topic, "topic")
        self.target = "stdout" if str(path) == "-" else str(path)

    def publish(self, messages: Sequence[Message]) -> Sequence[Result] | None:
        """Write all of them, or none."""
        text = b"".join(line(message) for message in messages)
        try:
            with self._lock:
                if str(self._path) == "-":
                    self._print(text)
                else:
                    self._append(text)
        except OSError as error:
            code = errno.errorcode.get(error.errno or 0, "os_error")
            return [Result.unavailable(code, f"{self.target}: {error.strerror or error}")] * len(messages)
        return None

    def _print(self, text: bytes) -> None:
        sys.stdout.flush()
        raw = getattr(sys.stdout.buffer, "raw", None)
        if raw is None:  # what stands in for a terminal, in a notebook for example
            sys.stdout.buffer.write(text)
            return
        # Past the buffer: it would keep what could not be written, and write it later, after it was sent again.
        if self._torn:
            text = b"\n" + text
        self._torn = True
        _write(raw, text)
        self._torn = False

    def _append(self, text: bytes) -> None:
        with self._locked() as file:
            start = _end_of_lines(file)
            os.ftruncate(file.fileno(), start)
            try:
                _write(file, text)
                if self._sync:
                    os.fsync(file.fileno())
            except OSError:
                os.ftruncate(file.fileno(), start)
                raise

    def _locked(self) -> io.FileIO:
        """Open the file and lock it until it is closed. Another one may have its name by the time the lock is ours."""
        while True:
            file = self._path.open("a+b", buffering=0)
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                if _is_at(file, self._path):
                    return file
            except BaseException:
                file.close()
                raise
            file.close()


def _is_at(file: io.FileIO, path: Path) -> bool:
    """Whether a file was neither moved nor deleted since it was opened."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _write(file: Any, text: bytes) -> None:
    rest = memoryview(text)
    while rest:
        if (written := file.write(rest)) is None:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        rest = rest[written:]


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


def _end_of_lines(file: io.FileIO) -> int:
    """Return where the last whole line of a file ends."""
    place = file.seek(0, os.SEEK_END)
    while place:
        start = max(0, place - _TAIL)
        found = os.pread(file.fileno(), place - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        place = start
    return 0

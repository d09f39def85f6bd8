"""A file of events, one JSON object to a line: checked as a whole before the first one is stored."""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from types import TracebackType
from typing import IO, Any

from penstock.cli.times import parse_time
from penstock.core.limits import PAYLOAD_BYTES
from penstock.errors import InvalidInput, InvalidPayload, MissingField, TooLarge
from penstock.log import new_events

BATCH = 10_000  # events in one transaction
_BATCH_BYTES = 64 * 1024 * 1024  # … or fewer, if they are large
_LINE_BYTES = 8 * PAYLOAD_BYTES  # a payload that is all escapes, and its headers
_SPOOL_BYTES = 16 * 1024 * 1024

Numbered = tuple[int, dict[str, Any]]  # the line's number, the event's fields


def parse_json(text: str | bytes, what: str) -> Any:
    """JSON, without what Python would let pass: NaN is none, and large numbers keep every digit."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidPayload(f"{what} is not valid JSON: {error}.") from error


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


class JsonLines:
    """The lines of a file, or of `-` (standard input), as often as they are asked for."""

    def __init__(self, source: str, default_type: str | None) -> None:
        self._default_type = default_type
        self._file = _rereadable(source)
        self.bytes = self._file.seek(0, os.SEEK_END)

    def __enter__(self) -> JsonLines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def batches(self) -> Iterator[list[Numbered]]:
        """The events from the beginning, in pieces for one transaction each."""
        self._file.seek(0)
        batch: list[Numbered] = []
        size = number = 0
        while line := self._file.readline(_LINE_BYTES + 1):
            number += 1
            if len(line) > _LINE_BYTES:
                raise TooLarge(f"Line {number}: longer than {_LINE_BYTES:,} bytes.")
            if not line.strip():
                continue
            batch.append((number, self._fields(number, line)))
            size += len(line)
            if len(batch) == BATCH or size >= _BATCH_BYTES:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def position(self) -> int:
        """How many bytes have been read."""
        return self._file.tell()

    def _fields(self, number: int, line: bytes) -> dict[str, Any]:
        fields = parse_json(line, f"Line {number}")
        if not isinstance(fields, dict):
            raise InvalidInput(f"Line {number}: an event is a JSON object, not {type(fields).__name__}.")
        if self._default_type is not None:
            fields.setdefault("type", self._default_type)
        if isinstance(due := fields.get("available_at"), str):
            fields["available_at"] = parse_time(due, f"Line {number}: available_at")
        return fields


def check(stream: str, batch: list[Numbered]) -> None:
    """Refuse the batch over its first bad line, named by its number."""
    try:
        new_events.one_by_one(stream, [fields for _, fields in batch])
    except InvalidInput as error:
        for number, fields in batch:
            _check_one(stream, number, fields)
        raise AssertionError("every line alone passed") from error


def _check_one(stream: str, number: int, fields: dict[str, Any]) -> None:
    if fields.get("type") is None:
        raise MissingField(f"Line {number}: type is missing.")
    try:
        new_events.one_by_one(stream, [fields])
    except InvalidInput as error:
        raise type(error)(f"Line {number}: {error.message.removeprefix('Event 0: ')}") from error


def _rereadable(source: str) -> IO[bytes]:
    """The file itself if it can be read twice, else a copy of it."""
    try:
        if source != "-":
            file = open(source, "rb")  # noqa: SIM115  # closed by JsonLines
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return file
            with file:
                return _copy(file)
        return _copy(sys.stdin.buffer)
    except OSError as error:
        raise InvalidInput(f"Cannot read {source}: {error.strerror}.") from error


def _copy(file: IO[bytes]) -> IO[bytes]:
    copy = tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES)  # noqa: SIM115  # closed by JsonLines
    shutil.copyfileobj(file, copy)
    return copy

"""Messages between the engine's processes: a small pickled header, and a body of packed events.

Pickle is safe here: both ends run the same installation and app, and nothing is stored. It keeps the types of effect
parameters (times, decimals, uuids).
"""

from __future__ import annotations

import pickle
import socket
import struct
from typing import Any

_SIZES = struct.Struct("<QQ")
_READ = 1 << 20
_SMALL = 1 << 16  # a message up to this size is written and read in one piece, so that its reader wakes up once


def frame(header: Any, body: Any = b"") -> list[memoryview]:
    """Encode a message as pieces, to be written in order."""
    packed = pickle.dumps(header, protocol=5)
    sizes = _SIZES.pack(len(packed), len(body))
    if len(packed) + len(body) <= _SMALL:
        return [memoryview(b"".join((sizes, packed, body)))]
    pieces = [memoryview(sizes), memoryview(packed)]
    return [*pieces, memoryview(body).cast("B")] if len(body) else pieces


def send(connection: socket.socket, header: Any, body: Any = b"") -> None:
    """Write one message; return when the socket has taken all of it."""
    for piece in frame(header, body):
        connection.sendall(piece)


class Frames:
    """A decoder for messages that arrive in pieces."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[Any, bytes]]:
        """Add data; return the messages that are now complete."""
        self._buffer += data
        found = []
        while (message := self._next()) is not None:
            found.append(message)
        return found

    def _next(self) -> tuple[Any, bytes] | None:
        if len(self._buffer) < _SIZES.size:
            return None
        header, body = _SIZES.unpack_from(self._buffer)
        end = _SIZES.size + header + body
        if len(self._buffer) < end:
            return None
        with memoryview(self._buffer) as view:
            message = pickle.loads(view[_SIZES.size : _SIZES.size + header]), bytes(view[_SIZES.size + header : end])
        del self._buffer[:end]
        return message


def receive(connection: socket.socket) -> tuple[Any, bytearray | memoryview] | None:
    """Wait for one message; None when the other end has closed."""
    sizes = _exactly(connection, _SIZES.size)
    if sizes is None:
        return None
    header_size, body_size = _SIZES.unpack(sizes)
    if header_size + body_size <= _SMALL:
        both = _exactly(connection, header_size + body_size)
        return None if both is None else (pickle.loads(memoryview(both)[:header_size]), memoryview(both)[header_size:])
    header = _exactly(connection, header_size)
    body = _exactly(connection, body_size)
    if header is None or body is None:
        return None
    return pickle.loads(header), body


def _exactly(connection: socket.socket, size: int) -> bytearray | None:
    buffer = bytearray(size)
    view = memoryview(buffer)
    done = 0
    while done < size:
        count = connection.recv_into(view[done:], min(_READ, size - done))
        if not count:
            return None
        done += count
    return buffer

"""HTTP/1.1, one request at a time on a connection that is kept: a few percent of what a general client costs."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import h11

from penstock.connect.webhook.place import Place

Pair = tuple[bytes, bytes]

_READ = 64 * 1024  # bytes of an answer that are read
_SHOWN = 200  # of which this many are shown in an error
_IDLE_SECONDS = 30.0  # a connection that was not used for longer may be dead without a word


class Answer(NamedTuple):
    """What a server answered."""

    status: int
    headers: dict[bytes, bytes]
    text: str


class Unreachable(Exception):
    """No connection could be made."""


class Cut(Exception):
    """The connection ended before the answer did; `reused` if it had served requests before."""

    def __init__(self, text: str, reused: bool) -> None:
        super().__init__(text)
        self.reused = reused


class Connections:
    """Open connections, by place. They belong to the loop in which they are used."""

    def __init__(self, timeout: float, context: ssl.SSLContext | None) -> None:
        self._timeout = timeout
        self._context = context
        self._idle: dict[Any, list[_Connection]] = defaultdict(list)

    async def post(self, place: Place, headers: Sequence[Pair], body: bytes) -> Answer:
        """Send a request and return the answer.

        Raises `Unreachable`, `Cut`, `TimeoutError`, or `h11.LocalProtocolError` if HTTP cannot carry it.
        """
        connection = self._take(place) or await self._open(place)
        try:
            async with asyncio.timeout(self._timeout):
                answer = await connection.post(place, headers, body)
        except BaseException:
            connection.close()
            raise
        if connection.reusable:
            self._idle[place.origin, place.address].append(connection)
        else:
            connection.close()
        return answer

    def _take(self, place: Place) -> _Connection | None:
        idle = self._idle[place.origin, place.address]
        while idle:
            connection = idle.pop()
            if connection.alive:
                return connection
            connection.close()
        return None

    async def _open(self, place: Place) -> _Connection:
        if place.secure and self._context is None:
            self._context = ssl.create_default_context()
        try:
            async with asyncio.timeout(self._timeout):
                ends = await asyncio.open_connection(
                    place.address or place.host,
                    place.port,
                    ssl=self._context if place.secure else None,
                    server_hostname=place.host if place.secure else None,
                )
        except (OSError, UnicodeError) as error:  # TimeoutError and SSLError are OSErrors
            raise Unreachable(str(error) or f"no connection within {self._timeout:g} s") from error
        return _Connection(*ends)

    def close(self) -> None:
        """Close all that are not in use."""
        for idle in self._idle.values():
            for connection in idle:
                connection.close()
        self._idle.clear()


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._http = h11.Connection(h11.CLIENT)
        self._used = 0
        self._last = time.monotonic()
        self.reusable = False

    @property
    def alive(self) -> bool:
        """Whether it can be expected to take another request."""
        over = self._reader.at_eof() or self._reader.exception() is not None or self._writer.is_closing()
        return not over and time.monotonic() - self._last < _IDLE_SECONDS

    async def post(self, place: Place, headers: Sequence[Pair], body: bytes) -> Answer:
        http, self.reusable = self._http, False
        request = h11.Request(
            method=b"POST",
            target=place.target,
            headers=[(b"host", place.host_header), (b"content-length", b"%d" % len(body)), *headers],
        )
        sent = (http.send(request), http.send(h11.Data(data=body)), http.send(h11.EndOfMessage()))
        try:
            self._writer.write(b"".join(part for part in sent if part))  # an early answer must not wait for the body
            return await self._answer()
        except (OSError, h11.RemoteProtocolError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise Cut(str(error) or "the connection was cut", self._used > 0) from error
        finally:
            self._used += 1
            self._last = time.monotonic()

    async def _answer(self) -> Answer:
        status, headers, text, total = 0, {}, b"", 0
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(await self._reader.read(_READ))
            elif isinstance(event, h11.Response):
                status, headers = event.status_code, dict(event.headers)
            elif isinstance(event, h11.Data):
                total += len(event.data)
                text = (text + event.data)[:_SHOWN]
                if total > _READ:  # an answer without an end: this much of it is enough
                    break
            elif isinstance(event, h11.EndOfMessage):
                self.reusable = self._http.our_state is self._http.their_state is h11.DONE
                if self.reusable:
                    self._http.start_next_cycle()
                break
            elif event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
                raise ConnectionResetError("the server closed the connection without an answer")
        return Answer(status, headers, "" if 200 <= status < 300 else text.decode(errors="replace"))

    def close(self) -> None:
        self._writer.transport.abort()

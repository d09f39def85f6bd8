"""POST over connections that are kept, with aiohttp; of what can go wrong, the few cases that matter here."""

from __future__ import annotations

import io
import ssl
from collections.abc import Sequence
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, NamedTuple

from penstock.connect.webhook.place import Place

Pair = tuple[bytes, bytes]

_READ = 64 * 1024  # bytes of an answer that are read
_LARGE = 256 * 1024  # bytes of a body that is written in parts
_KEPT = 4 * 1024  # of which this many are kept for an error
_IDLE_SECONDS = 30.0  # a connection that was not used for longer may be dead without a word
_NOT_OURS = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")  # headers that the client would add


# Whether the request has a connection of an earlier one.
_reused: ContextVar[bool] = ContextVar("reused", default=False)


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
        self._session: Any = None

    async def post(self, place: Place, headers: Sequence[Pair], body: bytes) -> Answer:
        """Send a request and return the answer; redirects are not followed.

        Raises `Unreachable`, `Cut`, `TimeoutError`, or `ValueError` if HTTP cannot carry it.
        """
        import aiohttp

        if self._session is None:
            self._session = _session(self._timeout, self._context)
        _reused.set(False)
        request = self._session.post(
            place.connected_to,
            data=body if len(body) < _LARGE else io.BytesIO(body),
            headers=_headers(place, tuple(headers)),
            allow_redirects=False,
            server_hostname=place.host if place.secure else None,
        )
        try:
            async with request as answer:
                return await _read(answer)
        except (aiohttp.ConnectionTimeoutError, aiohttp.ClientConnectorError) as error:
            raise Unreachable(_why(error, place) or f"no connection within {self._timeout:g} s") from error
        except TimeoutError:
            raise
        except aiohttp.InvalidURL as error:
            raise ValueError(_why(error, place)) from error
        except aiohttp.ClientError as error:
            if self._session.closed:
                raise ConnectionAbortedError("The publisher was closed.") from error
            if _reused.get():  # so that the next attempt has a new one, and tells whether the message is why
                self._session.connector.age += 1
            raise Cut(_why(error, place) or "the connection was cut", _reused.get()) from error

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()


def _session(timeout: float, context: ssl.SSLContext | None) -> Any:
    import aiohttp

    class Connector(aiohttp.TCPConnector):
        """Notes for each request whether its connection is new; the client's tracing would tell, too, but is slow."""

        age = 0  # grows when a kept connection turned out to be gone: older ones are not used again

        async def connect(self, *given: Any, **options: Any) -> aiohttp.connector.Connection:
            while True:
                connection = await super().connect(*given, **options)
                protocol: Any = connection.protocol  # lives as long as the connection, and has room for a mark
                age = getattr(protocol, "penstock_age", None)
                if age is None:
                    protocol.penstock_age = self.age
                    return connection
                if age == self.age:
                    _reused.set(True)
                    return connection
                connection.close()

    return aiohttp.ClientSession(
        connector=Connector(limit=0, ssl=context or True, keepalive_timeout=_IDLE_SECONDS),
        # A connection that cannot be made fails as such: name, addresses and handshake take less than the whole time.
        timeout=aiohttp.ClientTimeout(total=timeout, connect=0.9 * timeout),
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=_NOT_OURS,
        auto_decompress=False,
    )


@lru_cache(maxsize=64)
def _headers(place: Place, headers: Sequence[Pair]) -> Any:
    """Return headers as the client takes them; `ValueError` for bytes that are no text, which it cannot send.

    Most requests have the same as the one before.
    """
    from multidict import CIMultiDict

    made = [(name.decode(), value.decode()) for name, value in headers]
    if place.address is not None:
        made.append(("Host", place.host_header.decode()))
    return CIMultiDict(made)


def _why(error: Exception, place: Place) -> str:
    """Return what went wrong without the URL, which may have a token in it; the client likes to show it."""
    text = str(getattr(error, "message", "") or error)
    return text.replace(str(place.connected_to), place.host)


async def _read(answer: Any) -> Answer:
    """Read an answer, but not one without an end; the text of a success does not matter."""
    text = b""
    left = _READ
    while left > 0 and not answer.content.at_eof() and (chunk := await answer.content.read(left)):
        text = (text + chunk)[:_KEPT]
        left -= len(chunk)
    if left <= 0:
        answer.close()
    if 200 <= answer.status < 300:
        return Answer(answer.status, {}, "")
    headers = {name.lower(): value for name, value in answer.raw_headers}
    return Answer(answer.status, headers, text.decode(errors="replace"))

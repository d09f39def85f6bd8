"""`Webhook`: publish over HTTP, as CloudEvents, signed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.connect.loop_thread import LoopThread
from penstock.connect.per_process import PerProcess
from penstock.connect.webhook import cloud_event
from penstock.connect.webhook.answer import result_of
from penstock.connect.webhook.cloud_event import Pair
from penstock.connect.webhook.redirect import Place, Refused, follow
from penstock.connect.webhook.signature import key_of, sign
from penstock.core.urls import without_password
from penstock.declare.publisher import OK, Message, Result
from penstock.errors import InvalidPublisher

_REDIRECTS = 3
_SAME_METHOD = (307, 308)
_READ = 64 * 1024  # bytes of an answer that are read
_SHOWN = 200  # characters of it in an error


class Webhook:
    """Sends every message as a POST, up to `connections` at once, and reads the answer.

    `mode="structured"` has the whole CloudEvent in the body; `mode="binary"` has the payload as it is, and the rest in
    `ce-` headers. With `secret` requests are signed (see `verify_webhook`). `headers` are added to every request, for
    example an authorization. The topic is the URL; a rule may name another one.
    """

    batch = 256

    def __init__(
        self,
        url: str,
        *,
        secret: str | bytes | None = None,
        mode: str = "structured",
        headers: Mapping[str, str] | None = None,
        connections: int = 32,
        timeout_seconds: float = 10.0,
        source: str | None = None,
        allow_private_redirects: bool = False,
    ) -> None:
        if mode not in ("structured", "binary"):
            raise InvalidPublisher(f'mode is "structured" or "binary", not {mode!r}.')
        if not isinstance(url, str) or not url.startswith(("http://", "https://")):
            raise InvalidPublisher(f"A webhook has an http:// or https:// URL, not {url!r:.80}.")
        self.topic = url
        self.target = without_password(url).partition("?")[0]
        self._key = None if secret is None else key_of(secret)
        self._encode = cloud_event.structured if mode == "structured" else cloud_event.binary
        self._private = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
        self._connections = connections
        self._timeout = timeout_seconds
        self._source = source
        self._allow_private = allow_private_redirects
        self._client = PerProcess(self._open, lambda client: client.close())

    def _open(self) -> _Client:
        return _Client(self._connections, self._timeout, self._private, self._allow_private)

    def publish(self, messages: Sequence[Message]) -> Sequence[Result] | None:
        """Send all messages, and wait for their answers."""
        results = self._client.get().send(messages, self._request)
        return None if all(one is OK for one in results) else results

    def _request(self, message: Message) -> tuple[list[Pair], bytes]:
        """Return headers and body; `ValueError` if HTTP cannot carry them."""
        headers, body = self._encode(message, self._source or f"penstock:{message.stream}")
        taken = {name.lower() for name, _ in self._private}
        headers += [pair for pair in cloud_event.own_headers(message) if pair[0].lower() not in taken]
        if self._key is not None:
            stamp = int(time.time())
            headers += [
                (b"webhook-id", message.id.encode()),
                (b"webhook-timestamp", b"%d" % stamp),
                (b"webhook-signature", sign(self._key, message.id, stamp, body).encode()),
            ]
        return headers, body

    def close(self) -> None:
        """Close all connections."""
        self._client.drop()


class _Client:
    """The connections of one process."""

    def __init__(self, connections: int, timeout: float, private: Sequence[Pair], allow_private: bool) -> None:
        import httpx

        self._connections = connections
        self._private = private
        self._allow_private = allow_private
        self._loop = LoopThread("webhook")
        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        self._http = httpx.AsyncClient(limits=limits, timeout=timeout, trust_env=False)

    def send(self, messages: Sequence[Message], request: Any) -> list[Result]:
        return self._loop.run(self._send(messages, request))

    async def _send(self, messages: Sequence[Message], request: Any) -> list[Result]:
        results: list[Result | None] = [None] * len(messages)
        places = iter(range(len(messages)))
        down: list[Result] = []

        async def work() -> None:
            for place in places:
                results[place] = down[0] if down else await self._one(messages[place], request)
                if results[place].kind == "unavailable":  # type: ignore[union-attr]
                    down.append(results[place])  # type: ignore[arg-type]

        await asyncio.gather(*(work() for _ in range(min(self._connections, len(messages)))))
        return [one or OK for one in results]

    async def _one(self, message: Message, request: Any) -> Result:
        import httpx

        try:
            headers, body = request(message)
        except ValueError as error:
            return Result.permanent("invalid_header", str(error))
        try:
            return await self._post(message.topic, headers, self._private, body)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            return Result.unavailable("unreachable", _text(error))
        except httpx.TimeoutException as error:
            return Result.retry("timed_out", f"no answer in time: {_text(error)}")
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError) as error:
            return Result.permanent("invalid_request", _text(error))
        except httpx.TransportError as error:  # cut off: this message may be why
            return Result.retry("connection_lost", _text(error))
        except Refused as error:
            return Result.permanent("redirect_refused", str(error))

    async def _post(self, url: str, headers: Sequence[Pair], private: Sequence[Pair], body: bytes) -> Result:
        """Send a request and follow its redirects; to another host go only those headers that are not private."""
        place = first = Place(url)
        for _ in range(_REDIRECTS + 1):
            sent = [*headers, *(private if place.host == first.host else ())]
            extensions = {}
            if place.at is not None:
                sent.append((b"host", place.host.encode()))
                extensions["sni_hostname"] = place.name
            async with self._http.stream(
                "POST", place.at or place.url, content=body, headers=sent, extensions=extensions
            ) as answer:
                text = await _beginning(answer)
                location = answer.headers.get("location")
                if answer.status_code not in _SAME_METHOD or location is None:
                    return result_of(answer.status_code, answer.headers.get("retry-after"), text)
            place = await follow(place.url, location, allow_private=self._allow_private)
        raise Refused(f"more than {_REDIRECTS} redirects")

    def close(self) -> None:
        self._loop.run(self._http.aclose())
        self._loop.stop()


async def _beginning(answer: Any) -> str:
    """Read an answer, but not one without an end; return its first characters if it is an error."""
    read = b""
    total = 0
    async for chunk in answer.aiter_bytes():
        total += len(chunk)
        read = (read + chunk)[:_SHOWN]
        if total > _READ:
            break
    return "" if answer.is_success else read.decode(errors="replace")


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__

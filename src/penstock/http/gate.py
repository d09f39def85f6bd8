"""What every request passes before a route sees it: who asks, how often, from where, and how much it sends."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.errors import CrossSite, PenstockError, RateLimited, TooLarge, WrongMediaType
from penstock.http.auth import Auth
from penstock.http.problems import problem, unforeseen
from penstock.http.rate import RateLimit

BODY_BYTES: Final = 8 * 1024 * 1024
_DISCARDED_BYTES: Final = 64 * 1024 * 1024
_PATIENCE_SECONDS: Final = 5.0  # with the body of a request that is refused anyway
_SAFE: Final = ("GET", "HEAD", "OPTIONS")
_PUBLIC: Final = ("/healthz", "/readyz", "/openapi.json")
_HEADERS: Final = (  # on every answer: what is served is data, never a page
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
)


class Gate:
    """Refuses what no route should have to look at, before the body is read, and answers what nobody foresaw."""

    def __init__(self, app: ASGIApp, auth: Auth, rate: RateLimit, body_bytes: int = BODY_BYTES) -> None:
        self._app = app
        self._auth = auth
        self._rate = rate
        self._body_bytes = body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def answer(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        try:
            refused = await self._refuse(scope)
            if refused is not None:
                await _read(receive, 0, _PATIENCE_SECONDS)
                await refused(scope, receive, answer)
                return
            body = await _read(receive, self._body_bytes, None)
            if body is None:
                await problem(self._too_large())(scope, receive, answer)
                return
            await self._app(scope, _replay(body, receive), answer)
        except Exception as error:
            if started:
                raise
            await unforeseen(error)(scope, receive, answer)

    async def _refuse(self, scope: Scope) -> Response | None:
        """Return the answer to a request that no route may see."""
        headers = Headers(scope=scope)
        try:
            if scope["path"] not in _PUBLIC:
                given = headers.get("authorization"), headers.get("host")
                access = await run_in_threadpool(self._auth.access, *given)
                wait = self._rate.wait_seconds(access.name)
                if wait:
                    return problem(RateLimited(), {"Retry-After": str(wait)})
                scope.setdefault("state", {})["access"] = access
            if scope["method"] not in _SAFE:
                _check_site(headers)
                _check_media_type(headers)
            length = headers.get("content-length", "0")
            if length.isdecimal() and int(length[:20]) > self._body_bytes:
                raise self._too_large()
        except PenstockError as error:
            return problem(error)
        return None

    def _too_large(self) -> TooLarge:
        return TooLarge(f"The body of a request has at most {self._body_bytes:,} bytes.")


async def _read(receive: Receive, most: int, seconds: float | None) -> bytes | None:
    """Read a body; None if it has more than `most` bytes, takes longer, or if the client has gone before its end.

    What is too much is read and thrown away, up to a point: many clients look for the answer only when they have sent
    everything.
    """
    parts: list[bytes] = []
    size = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while size < _DISCARDED_BYTES:
                message = await receive()
                if message["type"] != "http.request":
                    return None
                part = message.get("body", b"")
                size += len(part)
                if size <= most:
                    parts.append(part)
                if not message.get("more_body", False):
                    return b"".join(parts) if size <= most else None
    return None


def _replay(body: bytes, receive: Receive) -> Receive:
    """Give the app the body that was read, and then whatever comes: that the client has gone, for example."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again


def _check_site(headers: Headers) -> None:
    """Refuse what a browser sends on behalf of a page of another site."""
    origin = headers.get("origin")
    if origin is None:
        return
    try:
        host = urlsplit(origin).netloc.lower()
    except ValueError:
        host = ""
    if not host or host != headers.get("host", "").lower():
        raise CrossSite


def _check_media_type(headers: Headers) -> None:
    """A form of another site can send text, but not JSON."""
    if headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:
        return
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise WrongMediaType

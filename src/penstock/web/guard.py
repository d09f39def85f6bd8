"""What every request for a page passes: who asks, from which site, how much it sends; and the headers of answers."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.core.access import Access
from penstock.errors import CrossSite, TooLarge

Authorize = Callable[[Request], "Access | Awaitable[Access | None] | None"]
Failed = Callable[[Request, Exception], Awaitable[Response]]
STATIC: Final = "/-/static/"
LOGIN: Final = "/login"
_SAFE: Final = ("GET", "HEAD")
_BODY_BYTES: Final = 2 * 1024 * 1024
CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS: Final = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with no-referrer, forms would say that they come from nowhere
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """Puts who asks into `request.state.access`, None for a stranger, and notes what is wrong in `.refused`."""

    def __init__(self, app: ASGIApp, authorize: Authorize | None, failed: Failed) -> None:
        self._app = app
        self._authorize = authorize
        self._failed = failed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        started = False

        async def answer(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                if kept_for_good:
                    headers["cache-control"] = "public, max-age=31536000, immutable"
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        state: dict[str, Any] = scope.setdefault("state", {})
        path = scope["route_path"] = route_path(scope)
        if path == "/" and not scope["path"].endswith("/"):  # the place itself, without its slash
            scope["path"] += "/"
        state["access"] = state["refused"] = None
        request = Request(scope)
        kept_for_good = path.startswith(STATIC) and request.url.query.startswith("v=")
        try:
            if scope["method"] not in _SAFE:
                state["refused"] = refusal(request.headers)
            if not path.startswith(STATIC) and state["refused"] is None:
                state["access"] = await allowed(self._authorize, request)
            await self._app(scope, _limited(receive), answer)
        except Exception as error:
            if started:
                raise
            await (await self._failed(request, error))(scope, receive, answer)


def route_path(scope: Scope) -> str:
    """Return the path below the place where the application is mounted."""
    path, root = str(scope["path"]), str(scope.get("root_path", "")).rstrip("/")
    inside = path[len(root) :] if root and (path == root or path.startswith(f"{root}/")) else path
    return inside or "/"


async def allowed(authorize: Authorize | None, request: Request) -> Access | None:
    """Ask who may do what; a plain function is called in a thread, for it may look into a database."""
    if authorize is None:
        return None
    if inspect.iscoroutinefunction(authorize):
        found = await authorize(request)
    else:
        found = await run_in_threadpool(authorize, request)
        if inspect.isawaitable(found):
            found = await found
    assert found is None or isinstance(found, Access), "authorize returns a penstock.core.access.Access, or None"
    return found


def refusal(headers: Headers) -> CrossSite | None:
    """Refuse what a page of another site could have sent, and what does not say where it comes from.

    A browser says it with every form. Programs have the API.
    """
    site = headers.get("sec-fetch-site")
    if site is not None:
        return None if site == "same-origin" else CrossSite()
    try:
        host = urlsplit(headers.get("origin", "")).netloc.lower()
    except ValueError:
        host = ""
    return None if host and host == headers.get("host", "").lower() else CrossSite()


def _limited(receive: Receive) -> Receive:
    size = 0

    async def counted() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > _BODY_BYTES:
            raise TooLarge(f"A form has at most {_BODY_BYTES:,} bytes.")
        return message

    return counted

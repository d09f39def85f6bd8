"""Which requests are for the API and which for the pages."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send


class Front:
    """Sends what the API owns to the API, pages to the pages, and of the rest to the pages what a browser asks for."""

    def __init__(self, app: ASGIApp, pages: Starlette, own: Collection[str]) -> None:
        self._app = app
        self._pages = pages
        self._own = frozenset(own)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._is_page(scope):
            await self._pages(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _is_page(self, scope: Scope) -> bool:
        if scope["path"].split("/", 2)[1:2] and scope["path"].split("/", 2)[1] in self._own:
            return False
        if any(route.matches(scope)[0] is not Match.NONE for route in self._pages.routes):
            return True
        return "text/html" in Headers(scope=scope).get("accept", "")


def first_parts(routes: Iterable[BaseRoute]) -> set[str]:
    """Return what the paths of routes begin with."""
    return {str(route.path).split("/", 2)[1] for route in routes if hasattr(route, "path")}

"""The door of a service of its own: a token is exchanged for a cookie, which never holds the token."""

from __future__ import annotations

from typing import Final, Protocol

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from penstock.core.access import Access

_COOKIE: Final = "__Host-penstock"


class SignIn(Protocol):
    """Sessions: who has shown a token. All of it may block."""

    seconds: int  # how long a session lasts

    def enter(self, secret: str) -> str | None:
        """Return the id of a new session; None if the token is not known."""

    def access(self, session: str) -> Access | None:
        """Return who has opened a session; None if it is over, or the token was revoked."""

    def leave(self, session: str) -> None:
        """End a session."""


def cookie_name(request: Request) -> str:
    """Return the name of the cookie. Cookies do not know ports, and a machine may serve several logs."""
    port = request.url.port
    return _COOKIE if port is None else f"{_COOKIE}-{port}"


def session_of(request: Request) -> str | None:
    """Return the id of the session that a browser has."""
    return request.cookies.get(cookie_name(request))


def entered(request: Request, session: str, seconds: int, to: str) -> Response:
    """Answer with the cookie. Browsers take a Secure one over HTTP from this machine, too."""
    answer = RedirectResponse(to, 303)
    answer.set_cookie(
        cookie_name(request), session, max_age=seconds, path="/", secure=True, httponly=True, samesite="strict"
    )
    return answer


def left(request: Request, to: str) -> Response:
    """Answer without the cookie."""
    answer = RedirectResponse(to, 303)
    answer.delete_cookie(cookie_name(request), path="/", secure=True, httponly=True, samesite="strict")
    return answer


def local(target: str, root: str) -> str:
    """Return a place below `root` to go on to; its beginning if the target is anywhere else.

    >>> local("/ops/s/orders?window=6h", "/ops"), local("//evil.example", "/ops"), local("https://evil", "")
    ('/ops/s/orders?window=6h', '/ops/', '/')
    """
    fine = target.startswith(f"{root}/") and not target.startswith("//") and "\\" not in target and target.isprintable()
    return target if fine and " " not in target else f"{root}/"

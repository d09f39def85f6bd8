"""Sessions of browsers: a token that was shown once, remembered by the hash that is stored of it.

They live in this process. After a restart people show their token again.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections import OrderedDict
from typing import Final

from starlette.requests import Request

from penstock.core.access import Access
from penstock.errors import CrossSite, Unauthorized
from penstock.http.auth import Auth, Tokens
from penstock.log.tokens import hash_of
from penstock.web.login import session_of

_SECONDS: Final = 12 * 3_600
_MOST: Final = 10_000


class Sessions:
    """Who has signed in. Whether the token still counts is asked with every request: see `Tokens`."""

    def __init__(self, tokens: Tokens, seconds: int = _SECONDS) -> None:
        self.seconds = seconds
        self._tokens = tokens
        self._lock = threading.Lock()
        self._known: OrderedDict[bytes, tuple[float, bytes]] = OrderedDict()

    def enter(self, secret: str) -> str | None:
        """Return the id of a new session: 256 random bits; None if the token is not known."""
        shown = hash_of(secret)
        if self._of(shown) is None:
            return None
        session = secrets.token_urlsafe(32)
        with self._lock:
            self._known[_hash(session)] = (time.monotonic() + self.seconds, shown)
            while len(self._known) > _MOST:
                self._known.popitem(last=False)
        return session

    def access(self, session: str) -> Access | None:
        """Return who has opened a session; None if it is over, or the token was revoked."""
        with self._lock:
            until, shown = self._known.get(_hash(session), (0.0, b""))
        found = self._of(shown) if time.monotonic() < until else None
        if found is None:
            self.leave(session)
        return found

    def leave(self, session: str) -> None:
        """End a session."""
        with self._lock:
            self._known.pop(_hash(session), None)

    def _of(self, hashed: bytes) -> Access | None:
        try:
            return self._tokens.of_hash(hashed)
        except Unauthorized:
            return None


class Door:
    """Who looks at a page: a session, a token like that of a program, or, where no tokens are used, anybody here."""

    def __init__(self, auth: Auth) -> None:
        self._auth = auth
        self.sessions = Sessions(auth) if isinstance(auth, Tokens) else None

    def authorize(self, request: Request) -> Access | None:
        """Return what they may do; None for a stranger."""
        session = session_of(request)
        if self.sessions is not None and session is not None:
            return self.sessions.access(session)
        try:
            return self._auth.access(request.headers.get("authorization"), request.headers.get("host"))
        except (Unauthorized, CrossSite):
            return None


def _hash(session: str) -> bytes:
    return hashlib.sha256(session.encode("utf-8", "surrogatepass")).digest()

"""Who sends a request: a bearer token, or nobody in particular on this machine."""

from __future__ import annotations

import hmac
import time
from collections import OrderedDict
from typing import Final, Protocol

from penstock.core.access import ADMIN, Access, Grant
from penstock.core.urls import is_loopback
from penstock.errors import CrossSite, Unauthorized
from penstock.log.log import Log
from penstock.log.tokens import ENVIRONMENT, hash_of

_KNOWN_SECONDS: Final = 1.0  # how long a token is believed without a look, and so how long a revoked one still works
_MOST: Final = 10_000  # tokens that are remembered


class Auth(Protocol):
    """How the service knows who asks."""

    def access(self, authorization: str | None, host: str | None) -> Access:
        """Return who asks, given the headers Authorization and Host; `Unauthorized` for a stranger. May block."""


class Tokens:
    """Bearer tokens: those in the log, and one of the environment, which may do everything."""

    def __init__(self, log: Log, environment: str | None = None) -> None:
        self._log = log
        self._environment = None if environment is None else hash_of(environment)
        self._known: OrderedDict[bytes, tuple[float, Access]] = OrderedDict()

    def access(self, authorization: str | None, host: str | None) -> Access:
        if authorization is None:
            raise Unauthorized
        scheme, _, secret = authorization.partition(" ")
        if scheme.lower() != "bearer" or not secret.strip():
            raise Unauthorized("The header Authorization is not `Bearer TOKEN`.")
        return self.of_hash(hash_of(secret.strip()))

    def of_hash(self, hashed: bytes) -> Access:
        """Return who has a token, given the hash of its secret; `Unauthorized` if it is unknown or revoked."""
        if self._environment is not None and hmac.compare_digest(hashed, self._environment):
            return Access(ENVIRONMENT, (Grant(ADMIN),))
        return self._stored(hashed)

    def _stored(self, hashed: bytes) -> Access:
        until, known = self._known.get(hashed, (0.0, None))
        if known is not None and time.monotonic() < until:
            return known
        self._known.pop(hashed, None)
        found = self._log.access_of(hashed)
        if found is None:
            raise Unauthorized("The token is unknown, or it was revoked.")
        self._known[hashed] = (time.monotonic() + _KNOWN_SECONDS, found)
        while len(self._known) > _MOST:
            self._known.popitem(last=False)
        return found


class NoAuth:
    """Everybody on this machine may do everything. A page in a browser that calls itself this machine may not."""

    def access(self, authorization: str | None, host: str | None) -> Access:
        if not is_loopback(_without_port(host or "")):
            raise CrossSite("Without tokens the service answers only to localhost and loopback addresses.")
        return Access("loopback", (Grant(ADMIN),))


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host

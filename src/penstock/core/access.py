"""What the holder of a token may do: scopes, each for all streams or for some of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from penstock.core.event import NAME
from penstock.errors import InvalidInput

APPEND, READ, PAYLOAD, WORK, OPERATE, ADMIN = "append", "read", "payload", "work", "operate", "admin"
SCOPES: Final = (APPEND, READ, PAYLOAD, WORK, OPERATE, ADMIN)
_ANY: Final = "*"  # at the end of a name: all streams that begin like this


class Grant(NamedTuple):
    """One scope, for all streams or for those with this name; `jobs:default:*` names all that begin like this."""

    scope: str
    streams: str | None = None

    def __str__(self) -> str:
        return self.scope if self.streams is None else f"{self.scope}:{self.streams}"

    def covers(self, stream: str) -> bool:
        """Return whether a stream is one of them. With a final `*`: whether all that begin like this are."""
        if self.streams is None:
            return True
        if self.streams.endswith(_ANY):
            return stream.startswith(self.streams[:-1])
        return stream == self.streams


@dataclass(frozen=True, slots=True)
class Access:
    """Who asks, and what they may do."""

    name: str
    grants: tuple[Grant, ...]

    def may(self, scope: str, stream: str) -> bool:
        """Return whether this scope is granted for a stream; `jobs:default:*` asks for all that begin like this."""
        return any(grant.covers(stream) for grant in self._of(scope))

    def may_everywhere(self, scope: str) -> bool:
        """Return whether this scope is granted for all streams."""
        return any(grant.streams is None for grant in self._of(scope))

    def may_somewhere(self, scope: str) -> bool:
        """Return whether this scope is granted for any stream."""
        return bool(self._of(scope))

    def _of(self, scope: str) -> list[Grant]:
        return [grant for grant in self.grants if grant.scope in (scope, ADMIN)]


def parse_grants(texts: Any) -> tuple[Grant, ...]:
    """Read scopes such as `read`, `append:orders` or `work:jobs:default:*`.

    >>> [str(one) for one in parse_grants(["read", "work:jobs:default:*"])]
    ['read', 'work:jobs:default:*']
    """
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise InvalidInput("scopes must be a list of texts.")
    found = tuple(dict.fromkeys(_grant(text) for text in texts))
    if not found:
        raise InvalidInput(f"A token needs at least one scope: {', '.join(SCOPES)}.")
    return found


def _grant(text: Any) -> Grant:
    scope, colon, streams = str(text).partition(":")
    if scope not in SCOPES:
        raise InvalidInput(f"{str(text)[:60]!r} is not a scope; scopes are {', '.join(SCOPES)}.")
    if not colon or streams == _ANY:
        return Grant(scope)
    if not NAME.match(streams.removesuffix(_ANY)):
        raise InvalidInput(f"{str(text)[:140]!r} names no stream; write for example {scope}:orders or {scope}:shop.*.")
    return Grant(scope, streams)


def texts_of(grants: Sequence[Grant]) -> list[str]:
    """Return scopes as they are written."""
    return [str(grant) for grant in grants]

"""What the function of a page is given: the log, who looks, and what they asked for."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import quote, urlencode

from starlette.requests import Request

from penstock.core.access import ADMIN, OPERATE, PAYLOAD, READ, Access
from penstock.core.event import check_name
from penstock.errors import Forbidden, InvalidInput
from penstock.log.log import Log

WINDOWS: Final = {"1h": 3_600, "6h": 6 * 3_600, "24h": 86_400, "7d": 7 * 86_400}
_LONGEST: Final = 2_000  # characters of a value in the query
_LARGEST: Final = 2**63 - 1


@dataclass(frozen=True)
class View:
    """One look at one page. `api` is the address of the HTTP service, for the curl of panels."""

    request: Request
    log: Log
    access: Access
    api: str
    path: Mapping[str, str] = field(default_factory=dict)

    # --- what was asked for --------------------------------------------------------------------------------------

    @property
    def root(self) -> str:
        """Where the application is mounted, without a final slash."""
        return str(self.request.scope.get("root_path", "")).rstrip("/")

    def name(self, part: str) -> str:
        """Return a stream's or a group's name from the path."""
        return check_name(self.path[part], part)

    def text(self, name: str, default: str = "") -> str:
        """Return a value of the query."""
        return self.request.query_params.get(name, default)[:_LONGEST].replace("\x00", "")

    def whole(self, name: str, default: int = 0) -> int:
        """Return a whole number of the query; `InvalidInput` for anything else."""
        sent = self.text(name)
        if not sent:
            return default
        if not (sent.isascii() and sent.isdecimal()) or len(sent) > 19 or int(sent) > _LARGEST:
            raise InvalidInput(f"{name} is a whole number, not {sent[:60]!r}.")
        return int(sent)

    def moment(self, name: str) -> datetime | None:
        """Return a time of the query, in ISO 8601 and UTC unless it says otherwise."""
        return moment_of(self.text(name), name)

    @property
    def window(self) -> str:
        """The time window: 1h, 6h, 24h or 7d."""
        sent = self.text("window", "1h")
        return sent if sent in WINDOWS else "1h"

    @property
    def window_seconds(self) -> int:
        """The time window in seconds."""
        return WINDOWS[self.window]

    def since(self, now: datetime) -> datetime:
        """Return when the time window begins."""
        return now - timedelta(seconds=self.window_seconds)

    # --- who asks ------------------------------------------------------------------------------------------------

    def may(self, scope: str, stream: str | None = None) -> bool:
        """Return whether a scope is granted for a stream; without one, for all streams."""
        return self.access.may_everywhere(scope) if stream is None else self.access.may(scope, stream)

    def require(self, scope: str, stream: str | None = None) -> None:
        """`Forbidden` unless a scope is granted for a stream; without one, for all streams."""
        if not self.may(scope, stream):
            where = "all streams" if stream is None else repr(stream)
            raise Forbidden(f"{self.access.name!r} does not have the scope {scope!r} for {where}.")

    def reads(self, stream: str) -> bool:
        """Return whether a stream may be looked at."""
        return self.may(READ, stream)

    def sees_payloads(self, stream: str) -> bool:
        """Return whether the bodies of a stream may be seen."""
        return self.may(PAYLOAD, stream)

    def operates(self, stream: str) -> bool:
        """Return whether a stream's groups may be acted on."""
        return self.may(OPERATE, stream)

    @property
    def administers(self) -> bool:
        """Whether the system may be changed."""
        return self.may(ADMIN)

    # --- where things are ----------------------------------------------------------------------------------------

    def url(self, *parts: str, **query: Any) -> str:
        """Return an address of a page: fixed parts begin with a slash, all others are escaped."""
        path = "".join(one if one.startswith("/") else f"/{quote(one, safe='')}" for one in parts)
        return f"{self.root}{path or '/'}{_query(query)}"

    def here(self, **query: Any) -> str:
        """Return the address of this page with some of its query changed; None leaves a part out."""
        known = {name: self.text(name) for name in self.request.query_params if name not in ("did", "n")}
        return f"{self.root}{self.request.scope['route_path']}{_query(known | query)}"

    # --- the same without the page -------------------------------------------------------------------------------

    def sql(self, block: str, **params: Any) -> str:
        """Return a named block with its parameters written into it."""
        return self.log.shown_sql(block, **params)

    def curl(self, path: str, **query: Any) -> str:
        """Return the command that asks the service for it."""
        return f'curl -H "Authorization: Bearer $PENSTOCK_TOKEN" {shlex.quote(f"{self.api}{path}{_query(query)}")}'


def _query(values: Mapping[str, Any]) -> str:
    given = {name: value for name, value in values.items() if value is not None and value != ""}
    return f"?{urlencode(given)}" if given else ""


def moment_of(sent: str, name: str) -> datetime | None:
    """Read a time; one without a zone is in UTC."""
    if not sent:
        return None
    try:
        found = datetime.fromisoformat(sent)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError) as error:  # there are times of other zones that UTC does not have
        raise InvalidInput(f"{name} is a time such as 2026-07-01T12:00Z, not {sent[:60]!r}.") from error

"""The requests of groups: create, bind and delete them, and what operators do to their deliveries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict, Unpack

from penstock.connect.http import decode
from penstock.connect.http.call import Call, given, path_of
from penstock.core.group import Position
from penstock.core.retry import Retry
from penstock.log.cancel import Cancelled
from penstock.log.selection import Moved


def position_sent(where: Position) -> str | int:
    """Return a position as it is sent."""
    return where.isoformat() if isinstance(where, datetime) else where


def create_group(
    stream: str,
    group: str,
    *,
    start: Position = "beginning",
    retry: Retry | None = None,
    lease_seconds: float | None = None,
    ordering: str | None = None,
    keyed: bool = False,
    on_dead: str = "continue",
    types: Sequence[str] | None = None,
    headers: Mapping[str, str] | None = None,
    lanes: int | None = None,
) -> Call[dict[str, Any]]:
    """Create a group; returns its settings. The same call again changes nothing."""
    body = given(
        group=group,
        start=position_sent(start),
        retry=None if retry is None else retry.storable().stored,
        lease_seconds=lease_seconds,
        ordering=ordering,
        keyed=keyed,
        on_dead=on_dead,
        types=types,
        headers=headers,
        lanes=lanes,
    )
    return Call("POST", path_of("streams", stream, "groups"), dict, body)


def groups(stream: str) -> Call[list[dict[str, Any]]]:
    """Return the groups of a stream with their settings."""
    return Call("GET", path_of("streams", stream, "groups"), lambda found: list(found["groups"]))


def bind(
    stream: str, group: str, *, types: Sequence[str] | None = None, headers: Mapping[str, str] | None = None
) -> Call[int]:
    """Change which events the group receives, for events above the offset that is returned."""
    body = given(types=types, headers=headers)
    return Call("POST", path_of("streams", stream, "groups", group, "bind"), lambda found: int(found["after"]), body)


def delete_group(stream: str, group: str) -> Call[None]:
    """Delete a group and its deliveries; the events stay."""
    return Call("DELETE", path_of("streams", stream, "groups", group), _nothing)


def _nothing(document: Any) -> None:
    return None


# --- operate ------------------------------------------------------------------------------------------------------


def _move(stream: str, group: str, verb: str, **body: Any) -> Call[Moved]:
    return Call("POST", path_of("streams", stream, "groups", group, verb), decode.moved_of, given(**body))


def _ids(event_ids: Iterable[Any] | None) -> list[str] | None:
    return None if event_ids is None else [str(one) for one in event_ids]


class Which(TypedDict, total=False):
    """Which deliveries an action applies to: all that match every filter."""

    event_ids: Iterable[Any] | None  # at most 1,000
    type: str | None
    since: datetime | None
    until: datetime | None


class WhichDead(Which, total=False):
    """Dead letters have an error, too."""

    error: str | None
    fingerprint: str | None


def filters(which: Which) -> dict[str, Any]:
    """Return filters as they are sent."""
    return {**which, "event_ids": _ids(which.get("event_ids"))}


def redrive(
    stream: str, group: str, *, all: bool = False, dry_run: bool = False, **which: Unpack[WhichDead]
) -> Call[Moved]:
    """Move dead letters back, DEAD → PENDING: by `event_ids` (at most 1,000), `error`, `type` or time, or all."""
    return _move(stream, group, "redrive", **filters(which), all=all, dry_run=dry_run)


def replay(stream: str, group: str, *, all: bool = False, dry_run: bool = False, **which: Unpack[Which]) -> Call[Moved]:
    """Deliver finished events again, PUBLISHED → PENDING: by `event_ids` (at most 1,000), `type` or time, or all."""
    return _move(stream, group, "replay", **filters(which), all=all, dry_run=dry_run)


def rewind(stream: str, group: str, *, to: Position, state: str = "keep", dry_run: bool = False) -> Call[Moved]:
    """Deliver everything above a position again; open leases end."""
    return _move(stream, group, "rewind", to=position_sent(to), state=state, dry_run=dry_run)


def kill(
    stream: str, group: str, *, event_ids: Iterable[Any], reason: str = "killed", dry_run: bool = False
) -> Call[Moved]:
    """Give up waiting deliveries; raises `InFlight` if one is being worked on."""
    return _move(stream, group, "kill", event_ids=_ids(event_ids), reason=reason, dry_run=dry_run)


def cancel(
    stream: str, group: str, *, event_ids: Iterable[Any], reason: str = "cancelled", dry_run: bool = False
) -> Call[Cancelled]:
    """Give up deliveries that wait; the holders of those that are claimed are told with their next heartbeat."""
    body = given(event_ids=_ids(event_ids), reason=reason, dry_run=dry_run)
    return Call("POST", path_of("streams", stream, "groups", group, "cancel"), decode.cancelled_of, body)


def reschedule(
    stream: str, group: str, *, event_ids: Iterable[Any], available_at: datetime, dry_run: bool = False
) -> Call[Moved]:
    """Change when PENDING deliveries become due."""
    return _move(stream, group, "reschedule", event_ids=_ids(event_ids), available_at=available_at, dry_run=dry_run)


def skip(stream: str, group: str, key: str, *, dry_run: bool = False) -> Call[Moved]:
    """Let a halted key continue past its dead letters."""
    return _move(stream, group, "skip", key=key, dry_run=dry_run)


def pause(stream: str, group: str, *, reason: str | None = None) -> Call[None]:
    """Give the group no new leases; open leases continue."""
    return Call("POST", path_of("streams", stream, "groups", group, "pause"), _nothing, given(reason=reason))


def resume(stream: str, group: str) -> Call[None]:
    """Continue after a pause."""
    return Call("POST", path_of("streams", stream, "groups", group, "resume"), _nothing)

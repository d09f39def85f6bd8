"""Groups: their policy, their binding, and where they stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from penstock.core import codec, limits
from penstock.core.event import check_name, check_text
from penstock.core.lanes import check_lanes
from penstock.core.retry import Retry
from penstock.core.routing import check_patterns
from penstock.errors import InvalidInput
from penstock.log import checking
from penstock.log.operating import Moved
from penstock.log.transacting import Transacting
from penstock.stores import groups, rewind
from penstock.stores.groups import Group

Position = str | int | datetime


class Grouping(Transacting):
    """What an application, or an operator, says about its groups."""

    def create_group(
        self,
        stream: str,
        group: str,
        *,
        start: Position = "beginning",
        retry: Retry | None = None,
        lease_seconds: float = limits.LEASE_SECONDS,
        ordering: str | None = None,
        keyed: bool = False,
        on_dead: str = "continue",
        types: Sequence[str] | None = None,
        headers: Mapping[str, str] | None = None,
        lanes: int | None = None,
    ) -> Group:
        """Create a group; the same call again returns it, other settings raise `GroupExists`.

        A group with `ordering="key"`, or `keyed` (state without order), is worked on by lanes.
        """
        begin, settings = settings_of(
            stream, group, start, retry, lease_seconds, ordering, keyed, on_dead, types, headers, lanes
        )
        return self._run(lambda tx: groups.create(tx, stream, group, begin, settings))

    def declare_group(
        self,
        stream: str,
        group: str,
        *,
        start: Position = "beginning",
        retry: Retry | None = None,
        lease_seconds: float = limits.LEASE_SECONDS,
        ordering: str | None = None,
        keyed: bool = False,
        on_dead: str = "continue",
        types: Sequence[str] | None = None,
        headers: Mapping[str, str] | None = None,
        lanes: int | None = None,
        by: str | None = None,
    ) -> Group:
        """What an app does with its groups: create one that is missing, bring retry and lease settings up to date.

        Another binding or order than the stored one raises `BindingChanged`.
        """
        begin, settings = settings_of(
            stream, group, start, retry, lease_seconds, ordering, keyed, on_dead, types, headers, lanes
        )
        return self._run(lambda tx: groups.declare(tx, stream, group, begin, settings, checking.author(by)))

    def groups(self, stream: str | None = None) -> list[Group]:
        """All groups, of one stream or of the log."""
        return self._run(lambda tx: groups.every(tx, stream), write=False)

    def pause(self, stream: str, group: str, *, reason: str | None = None, by: str | None = None) -> None:
        """Hand out nothing new; open leases go on."""
        why = check_text(reason, "reason")
        self._run(lambda tx: groups.set_paused(tx, stream, group, True, why, checking.author(by)))

    def resume(self, stream: str, group: str, *, by: str | None = None) -> None:
        """Go on after a pause."""
        self._run(lambda tx: groups.set_paused(tx, stream, group, False, None, checking.author(by)))

    def bind(
        self,
        stream: str,
        group: str,
        *,
        types: Sequence[str] | None = None,
        headers: Mapping[str, str] | None = None,
        by: str | None = None,
    ) -> int:
        """Change what the group wants, forward only; returns the offset behind which the new binding holds."""
        known = check_patterns(types)
        codec.encode_headers(headers)
        return self._run(lambda tx: groups.bind(tx, stream, group, known, headers or None, checking.author(by)))

    def double_lanes(self, stream: str, group: str, *, by: str | None = None) -> int:
        """Cut every lane of an ordered or keyed group in half; returns the new number of lanes."""
        return self._run(lambda tx: groups.double_lanes(tx, stream, group, checking.author(by)))

    def delete_group(self, stream: str, group: str, *, by: str | None = None) -> None:
        """Forget a group and its deliveries; the events stay."""
        self._run(lambda tx: groups.delete(tx, stream, group, checking.author(by)))

    def rewind(
        self,
        stream: str,
        group: str,
        *,
        to: Position,
        state: str = "keep",
        dry_run: bool = False,
        by: str | None = None,
    ) -> Moved:
        """Deliver everything above a position again; open leases end, other groups do not move."""
        if state not in ("keep", "reset"):
            raise InvalidInput(f'state is "keep" or "reset", not {state!r}.')
        target = checking.position(to, "to")
        count = self._run(
            lambda tx: rewind.rewind(
                tx, stream, group, target, reset_state=state == "reset", dry_run=dry_run, by=checking.author(by)
            )
        )
        return Moved(count, dry_run)


def settings_of(
    stream: str,
    group: str,
    start: Position,
    retry: Retry | None,
    lease_seconds: float,
    ordering: str | None,
    keyed: bool,
    on_dead: str,
    types: Sequence[str] | None,
    headers: Mapping[str, str] | None,
    lanes: int | None,
) -> tuple[Position, groups.Settings]:
    """What a caller says about a group, checked: where it starts, and how it is worked on."""
    check_name(stream, "stream")
    check_name(group, "group")
    if ordering not in (None, "key"):
        raise InvalidInput(f'ordering is None or "key", not {ordering!r}.')
    if on_dead not in ("continue", "halt"):
        raise InvalidInput(f'on_dead is "continue" or "halt", not {on_dead!r}.')
    if not isinstance(lease_seconds, int | float) or not 0 < lease_seconds <= limits.LEASE_SECONDS_MOST:
        raise InvalidInput("lease_seconds must be a positive number of at most seven days.")
    laned = ordering is not None or keyed
    wanted = check_lanes(limits.LANES_DEFAULT if lanes is None else lanes)
    known_types = check_patterns(types)
    codec.encode_headers(headers)
    begin = checking.position(start, "start")
    settings = groups.Settings(
        retry=retry or Retry(),
        lease_seconds=float(lease_seconds),
        ordering=ordering,
        keyed=keyed,
        lanes=wanted if laned else 1,
        on_dead=on_dead,
        types=known_types,
        headers=dict(headers) if headers else None,
    )
    return begin, settings

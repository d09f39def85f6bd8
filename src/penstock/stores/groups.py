"""Groups: their policy, their bindings, and where they start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any

import orjson

from penstock.core.circuit import Circuit
from penstock.core.lanes import check_lanes, children, slice_of
from penstock.core.retry import Retry
from penstock.core.routing import globs_of, regex_of
from penstock.errors import BindingChanged, GroupExists, InFlight, InvalidInput, UnknownGroup
from penstock.stores.base import Row, Transaction

FOREVER = 2**63 - 1
OUT_OF_ORDER = 10_000  # offsets by which an event may be younger than one above it


@dataclass(frozen=True, slots=True)
class Span:
    """What a group wants in (low, high]: one binding's reach."""

    binding: int
    low: int
    high: int
    types: tuple[str, ...] | None
    type_regex: str | None
    headers: str | None

    @property
    def everything(self) -> bool:
        """No filter at all."""
        return self.type_regex is None and self.headers is None


@dataclass(frozen=True, slots=True)
class Group:
    """A group's policy and bindings as stored."""

    group_id: int
    stream: str
    group_name: str
    ordered: bool
    keyed: bool
    lanes: int
    starts: Sequence[int]
    floor: int
    matched_before: int
    on_dead: str
    lease_seconds: float
    retry: Retry
    rewinds: int
    rewound_upto: int
    paused: bool
    pause_reason: str | None
    created_at: datetime
    spans: tuple[Span, ...]
    circuit: Circuit | None = None  # open, because the target was unavailable

    @property
    def exclusive(self) -> bool:
        """A lane of this group has at most one open lease."""
        return self.ordered or self.keyed

    def lived(self, replay: int, low: int) -> bool:
        """Whether events above `low`, in a range of this life, may have had a life before."""
        return replay > 0 or low < self.rewound_upto

    def span(self, binding: int) -> Span:
        """The reach of a binding."""
        return next(span for span in self.spans if span.binding == binding)


def span_at(group: Group, cursor: int) -> Span:
    """The binding that covers the next event behind a cursor."""
    return next(span for span in group.spans if cursor < span.high)


def find(tx: Transaction, stream: str, group_name: str) -> Group | None:
    """The group, or None."""
    row = tx.one("group.find", stream=stream, group_name=group_name, lease=None)
    return None if row is None else of(row)


def get(tx: Transaction, stream: str, group_name: str) -> Group:
    """The group, or `UnknownGroup`."""
    group = find(tx, stream, group_name)
    if group is None:
        raise unknown(stream, group_name)
    return group


def unknown(stream: str, group_name: str) -> UnknownGroup:
    """The error for a group that is not there."""
    return UnknownGroup(f"There is no group {group_name!r} on the stream {stream!r}.")


def locked(tx: Transaction, stream: str, group_name: str) -> Group:
    """The group as it is once this transaction alone may claim for it or operate on it."""
    while True:
        turn = tx.one("group.lock", stream=stream, group_name=group_name)
        group = get(tx, stream, group_name)  # in a later statement: what the last holder of the lock left behind
        if turn is not None and turn.group_id == group.group_id:  # and not one that was made anew while we waited
            return group


def every(tx: Transaction, stream: str | None = None, group_name: str | None = None) -> list[Group]:
    """All groups, of one stream or of the log."""
    return [of(row) for row in tx.rows("group.find", stream=stream, group_name=group_name, lease=None)]


def of(row: Row) -> Group:
    """The group in a row that has its columns and its bindings."""
    bindings = orjson.loads(row.bindings)
    spans = []
    for position, binding in enumerate(bindings):
        low = -1 if position == 0 else binding["from_offset"]
        high = bindings[position + 1]["from_offset"] if position + 1 < len(bindings) else FOREVER
        if high > low:
            types = None if binding["types"] is None else tuple(binding["types"])
            spans.append(Span(binding["id"], low, high, types, binding["type_regex"], binding["headers"]))
    retry = Retry(row.max_attempts, row.base_seconds, row.factor, row.cap_seconds, row.jitter, row.max_age_seconds)
    return Group(
        row.group_id,
        row.stream,
        row.group_name,
        row.ordering == "key",
        bool(row.keyed),
        row.lanes,
        row.starts,
        row.floor,
        row.matched_before,
        row.on_dead,
        row.lease_seconds,
        retry,
        row.rewinds,
        row.rewound_upto,
        bool(row.paused),
        row.pause_reason,
        row.created_at,
        tuple(spans),
        _circuit(row),
    )


def _circuit(row: Row) -> Circuit | None:
    if row.circuit_opened_at is None:
        return None
    return Circuit(
        row.circuit_opened_at,
        row.delay_seconds,
        row.probe_at,
        row.last_error,
        row.error_code,
        row.probe,
        row.probe_expires_at,
    )


def position(tx: Transaction, stream: str, where: str | int | datetime) -> int:
    """An offset from "beginning", "end", an offset or a time (of creation): the group gets what lies above it."""
    if where == "beginning":
        return 0
    if where == "end":
        return tx.horizon()
    if isinstance(where, datetime):
        return _offset_at(tx, stream, where)
    if isinstance(where, int) and not isinstance(where, bool) and where >= 0:
        return where
    raise InvalidInput(f'A position is "beginning", "end", an offset or a datetime, not {where!r}.')


def _offset_at(tx: Transaction, stream: str, at: datetime) -> int:
    """The offset behind which the first event created at a time or later lies; the horizon where there is none.

    Offsets and times grow together, but for appends that overtake one another, so it is looked for by halves.
    """
    last = tx.one("inspect.last_offset")
    low, high = 0, 0 if last is None or last.offset is None else int(last.offset)
    while low < high:
        middle = (low + high) // 2
        row = tx.one("group.created_after", stream=stream, after=middle)
        if row is None or row.created_at >= at:
            high = middle
        else:
            low = int(row.offset)
    row = tx.one("group.offset_at", stream=stream, at=at, low=max(0, low - OUT_OF_ORDER), high=low)
    if row is not None and row.offset is not None:
        return int(row.offset) - 1
    return tx.horizon() if tx.one("group.created_after", stream=stream, after=low) is None else low


def between(tx: Transaction, stream: str, since: datetime | None, until: datetime | None) -> tuple[int, int]:
    """(low, high] with every event of a stream that was created at a time or later, and before another."""
    last = tx.one("inspect.last_offset")
    low, high = 0, 0 if last is None or last.offset is None else int(last.offset)
    if since is not None:
        low = position(tx, stream, since)
    if until is not None:
        high = min(high, position(tx, stream, until) + OUT_OF_ORDER)
    return low, high


@dataclass(frozen=True, slots=True)
class Settings:
    """What a group is made with."""

    retry: Retry
    lease_seconds: float
    ordering: str | None
    keyed: bool
    lanes: int
    on_dead: str
    types: tuple[str, ...] | None
    headers: Mapping[str, str] | None


def settings(group: Group) -> Settings:
    """The settings a stored group has now."""
    last = group.spans[-1]
    headers = None if last.headers is None else orjson.loads(last.headers)
    ordering = "key" if group.ordered else None
    return Settings(
        group.retry, group.lease_seconds, ordering, group.keyed, group.lanes, group.on_dead, last.types, headers
    )


def create(tx: Transaction, stream: str, group_name: str, start: str | int | datetime, wanted: Settings) -> Group:
    """Create a group, or return the one that is there if it was made with the same settings."""
    known = find(tx, stream, group_name)
    if known is not None:
        return _same(known, wanted)
    begin = position(tx, stream, start)
    row = tx.one(
        "group.create",
        stream=stream,
        group_name=group_name,
        ordering=wanted.ordering,
        keyed=wanted.keyed,
        lanes=wanted.lanes,
        starts=[begin] * wanted.lanes,
        floor=begin,
        on_dead=wanted.on_dead,
        lease_seconds=wanted.lease_seconds,
        now=tx.now(),
        **asdict(wanted.retry),
    )
    if row is None:  # somebody else made it in the meantime
        return _same(get(tx, stream, group_name), wanted)
    add_binding(tx, row.group_id, begin, wanted.types, wanted.headers)
    return get(tx, stream, group_name)


def _same(known: Group, wanted: Settings) -> Group:
    stored = settings(known)
    differing = [one.name for one in fields(Settings) if getattr(stored, one.name) != getattr(wanted, one.name)]
    if differing:
        raise GroupExists(
            f"The group {known.group_name!r} on {known.stream!r} exists with another {', '.join(differing)}."
        )
    return known


def declare(
    tx: Transaction, stream: str, group_name: str, start: str | int | datetime, wanted: Settings, by: str
) -> Group:
    """What an app says about its group: made if missing, its policy brought up to date, its binding only compared.

    The number of lanes is what the group began with; it may have been doubled since.
    """
    known = find(tx, stream, group_name)
    if known is None:
        return create(tx, stream, group_name, start, wanted)
    stored = settings(known)
    fixed = ("ordering", "keyed", "types", "headers")
    differing = [name for name in fixed if _comparable(getattr(stored, name)) != _comparable(getattr(wanted, name))]
    if differing:
        raise BindingChanged(
            f"The group {group_name!r} on {stream!r} is stored with another {', '.join(differing)} than declared: "
            + "; ".join(f"{name} {getattr(stored, name)!r}, declared {getattr(wanted, name)!r}" for name in differing)
            + "."
        )
    policy = (wanted.retry, wanted.lease_seconds, wanted.on_dead)
    if policy != (stored.retry, stored.lease_seconds, stored.on_dead):
        set_policy(tx, stream, group_name, *policy, by)
    return get(tx, stream, group_name)


def _comparable(setting: Any) -> Any:
    """Types in any order are the same types, and nothing is nothing."""
    return sorted(setting) if isinstance(setting, tuple) else (setting or None)


def add_binding(
    tx: Transaction,
    group_id: int,
    from_offset: int,
    types: tuple[str, ...] | None,
    headers: Mapping[str, str] | None,
) -> None:
    """What the group wants from an offset on."""
    row = tx.one(
        "group.bind",
        group_id=group_id,
        from_offset=from_offset,
        types=None if types is None else list(types),
        type_regex=regex_of(types),
        headers=None if not headers else orjson.dumps(dict(headers), option=orjson.OPT_SORT_KEYS).decode(),
        now=tx.now(),
    )
    assert row is not None
    for glob in globs_of(types or ()):
        tx.run("group.bind_glob", binding=row.id, glob=glob.glob, min_dots=glob.min_dots, max_dots=glob.max_dots)


def bind(
    tx: Transaction,
    stream: str,
    group_name: str,
    types: tuple[str, ...] | None,
    headers: Mapping[str, str] | None,
    by: str,
) -> int:
    """A new binding, forward only: from the horizon on. Returns the offset it starts behind."""
    group = locked(tx, stream, group_name)
    horizon = tx.horizon()
    # The horizon may fall back behind a cursor for a moment; what is claimed keeps the binding it was claimed by.
    rows = tx.rows("claim.lanes", group_id=group.group_id, lanes=group.lanes)
    cursors = [group.starts[row.lane] if row.cursor is None else row.cursor for row in rows]
    begin = int(max(horizon, *cursors))
    add_binding(tx, group.group_id, begin, types, headers)
    audit(tx, by, "bind", group, None, {"types": list(types) if types else None, "headers": dict(headers or {})})
    return begin


def set_paused(tx: Transaction, stream: str, group_name: str, paused: bool, reason: str | None, by: str) -> None:
    """Pause hands out nothing new and leaves open leases alone; resume goes on."""
    group = locked(tx, stream, group_name)
    tx.run("group.pause", group_id=group.group_id, paused=paused, reason=reason if paused else None)
    audit(tx, by, "pause" if paused else "resume", group, None, {"reason": reason})


def set_policy(
    tx: Transaction, stream: str, group_name: str, retry: Retry, lease_seconds: float, on_dead: str, by: str
) -> None:
    """Change retry settings, lease length and what a dead letter does to its key."""
    group = locked(tx, stream, group_name)
    tx.run(
        "group.policy",
        group_id=group.group_id,
        lease_seconds=lease_seconds,
        on_dead=on_dead,
        **asdict(retry),
    )
    audit(tx, by, "policy", group, None, {"lease_seconds": lease_seconds, "on_dead": on_dead, **asdict(retry)})


def double_lanes(tx: Transaction, stream: str, group_name: str, by: str) -> int:
    """Cut every lane in half; a child inherits the cursor and the returned ranges. Returns the new number."""
    group = locked(tx, stream, group_name)
    lanes = check_lanes(group.lanes * 2)
    if not group.exclusive:
        raise InvalidInput("Only ordered and keyed groups have lanes.")
    if tx.one("group.open_lease", group_id=group.group_id) is not None:
        raise InFlight("The group has open leases; pause it and wait until they end.")
    rows = tx.rows("claim.lanes", group_id=group.group_id, lanes=group.lanes)
    starts = [0] * lanes
    matched = group.matched_before
    for row in rows:
        matched += row.total or 0
        for child in children(row.lane):
            starts[child] = group.starts[row.lane] if row.cursor is None else row.cursor
    for piece in tx.rows("returned.all", group_id=group.group_id):
        for child in children(piece.lane):
            low, high = slice_of(child, lanes)
            tx.run("returned.split", id=piece.id, lane=child, lanes=lanes, first_bucket=low, last_bucket=high)
        tx.run("claim.drop_returned", id=piece.id)
    tx.run("group.lanes", group_id=group.group_id, lanes=lanes, starts=starts, matched_before=matched)
    audit(tx, by, "lanes", group, None, {"lanes": lanes})
    return lanes


def delete(tx: Transaction, stream: str, group_name: str, by: str) -> None:
    """Forget a group and everything about its deliveries; the events stay."""
    group = locked(tx, stream, group_name)
    if tx.one("group.open_lease", group_id=group.group_id) is not None:
        raise InFlight("The group has open leases; pause it and wait until they end.")
    tx.run("group.delete", group_id=group.group_id)
    audit(tx, by, "delete_group", group, None, {})


def audit(tx: Transaction, by: str, action: str, group: Group, count: int | None, detail: Mapping[str, Any]) -> None:
    """One row for every action of an operator."""
    tx.run(
        "audit.add",
        by=by,
        action=action,
        stream=group.stream,
        group_name=group.group_name,
        count=count,
        detail=orjson.dumps(dict(detail), default=str).decode(),
        now=tx.now(),
    )
    tx.wake()  # what an operator does may give idle workers something to do

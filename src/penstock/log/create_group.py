"""Create a group, or update one to match an app's declaration."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from penstock.core.event import check_name
from penstock.core.group import Group, GroupSettings, Position
from penstock.errors import BindingChanged, GroupExists
from penstock.log import bindings, checks, groups, positions
from penstock.log.change_group import policy_of, set_policy
from penstock.log.transact import transact
from penstock.stores.base import Store, Transaction


def create(store: Store, stream: str, group: str, start: Position, wanted: GroupSettings) -> Group:
    """Create a group; raise `GroupExists` if it exists with different settings."""
    begin = _checked(stream, group, start)
    return transact(store, lambda tx: _create(tx, stream, group, begin, wanted))


def declare(
    store: Store, stream: str, group: str, start: Position, wanted: GroupSettings, by: str | None = None
) -> Group:
    """Apply an app's declaration: create a missing group, update its policy, only compare its binding.

    The declared number of lanes is used at creation only; it may have been doubled since.
    """
    begin, author = _checked(stream, group, start), checks.author(by)
    return transact(store, lambda tx: _declare(tx, stream, group, begin, wanted, author))


def _checked(stream: str, group: str, start: Position) -> Position:
    check_name(stream, "stream")
    check_name(group, "group")
    return checks.position(start, "start")


def _create(tx: Transaction, stream: str, group_name: str, start: Position, wanted: GroupSettings) -> Group:
    known = groups.find(tx, stream, group_name)
    if known is not None:
        return _same(known, wanted)
    begin = positions.offset_of(tx, stream, start)
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
        max_in_flight=wanted.max_in_flight,
        rate_per_second=wanted.rate_per_second,
        now=tx.now(),
        **wanted.retry.stored,
    )
    if row is None:  # another transaction has just created it
        return _same(groups.get(tx, stream, group_name), wanted)
    bindings.add(tx, row.group_id, begin, wanted.types, wanted.headers)
    return groups.get(tx, stream, group_name)


def ensure(tx: Transaction, stream: str, group_name: str, start: Position, wanted: GroupSettings) -> Group:
    """Create a group where it is missing, and leave an existing one as it is."""
    return groups.find(tx, stream, group_name) or _create(tx, stream, group_name, start, wanted)


def _same(known: Group, wanted: GroupSettings) -> Group:
    stored = known.settings
    differing = [one.name for one in fields(wanted) if getattr(stored, one.name) != getattr(wanted, one.name)]
    if differing:
        raise GroupExists(
            f"The group {known.group_name!r} on {known.stream!r} exists with a different {', '.join(differing)}."
        )
    return known


def _declare(tx: Transaction, stream: str, group_name: str, start: Position, wanted: GroupSettings, by: str) -> Group:
    known = groups.find(tx, stream, group_name)
    if known is None:
        return _create(tx, stream, group_name, start, wanted)
    stored = known.settings
    fixed = ("ordering", "keyed", "types", "headers")
    differing = [name for name in fixed if _comparable(getattr(stored, name)) != _comparable(getattr(wanted, name))]
    if differing:
        raise BindingChanged(
            f"The group {group_name!r} on {stream!r} differs from its declaration: "
            + "; ".join(
                f"{name} is {getattr(stored, name)!r}, declared {getattr(wanted, name)!r}" for name in differing
            )
            + "."
        )
    if policy_of(stored) != policy_of(wanted):
        set_policy(tx, stream, group_name, wanted, by)
    return groups.get(tx, stream, group_name)


def _comparable(setting: Any) -> Any:
    """Normalize a setting: the order of types does not matter, and empty equals None."""
    return sorted(setting) if isinstance(setting, tuple) else (setting or None)

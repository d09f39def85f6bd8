"""Change, pause, resume or delete a group."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.core.event import check_text
from penstock.core.group import (
    Group,
    GroupSettings,
    check_lease_seconds,
    check_max_in_flight,
    check_on_dead,
    check_rate,
)
from penstock.core.retry import Retry
from penstock.errors import InFlight, InvalidInput
from penstock.log import audit, checks, groups
from penstock.log.lanes import double_lanes
from penstock.log.transact import transact
from penstock.stores.base import Store, Transaction


def set_group(
    store: Store,
    stream: str,
    group: str,
    *,
    retry: Retry | None,
    lease_seconds: float | None,
    on_dead: str | None,
    lanes: int | None,
    max_in_flight: int | None,
    rate_per_second: float | None,
    by: str | None,
) -> Group:
    """Change the policy of a group; None leaves a setting unchanged, 0 removes a limit. Lanes can only be doubled."""
    author = checks.author(by)
    given: dict[str, Any] = {}
    if retry is not None:
        if not isinstance(retry, Retry):
            raise InvalidInput(f"retry must be a penstock.Retry, not {retry!r}.")
        given["retry"] = retry.storable()
    if lease_seconds is not None:
        given["lease_seconds"] = check_lease_seconds(lease_seconds)
    if on_dead is not None:
        given["on_dead"] = check_on_dead(on_dead)
    if max_in_flight is not None:
        given["max_in_flight"] = check_max_in_flight(max_in_flight) if max_in_flight else None
    if rate_per_second is not None:
        given["rate_per_second"] = check_rate(rate_per_second) if rate_per_second else None
    if not given and lanes is None:
        names = "retry, lease_seconds, on_dead, lanes, max_in_flight or rate_per_second"
        raise InvalidInput(f"Nothing to change: give {names}.")

    def change(tx: Transaction) -> Group:
        if given:
            wanted = replace(groups.locked(tx, stream, group).settings, **given)
            set_policy(tx, stream, group, wanted, author)
        if lanes is not None:
            _set_lanes(tx, groups.locked(tx, stream, group), lanes, author)
        return groups.get(tx, stream, group)

    return transact(store, change)


def policy_of(settings: GroupSettings) -> dict[str, Any]:
    """Return the settings that a later declaration may change, by their columns."""
    return {
        "lease_seconds": settings.lease_seconds,
        "on_dead": settings.on_dead,
        "max_in_flight": settings.max_in_flight,
        "rate_per_second": settings.rate_per_second,
        **settings.retry.stored,
    }


def set_policy(tx: Transaction, stream: str, group_name: str, wanted: GroupSettings, by: str) -> None:
    """Change the retry settings, `lease_seconds`, `on_dead` and the limits."""
    group = groups.locked(tx, stream, group_name)
    policy = policy_of(wanted)
    tx.run("group.policy", group_id=group.group_id, **policy)
    audit.record_for(tx, by, "policy", group, None, policy)


def _set_lanes(tx: Transaction, group: Group, lanes: Any, by: str) -> None:
    if lanes not in (group.lanes, 2 * group.lanes) or isinstance(lanes, bool):
        raise InvalidInput(f"The group has {group.lanes} lanes, which can only be doubled to {2 * group.lanes}.")
    if lanes != group.lanes:
        double_lanes(tx, group, by)


def double(store: Store, stream: str, group: str, by: str | None) -> int:
    """Split every lane of an ordered or keyed group in half; returns the new number of lanes."""
    author = checks.author(by)
    return transact(store, lambda tx: double_lanes(tx, groups.locked(tx, stream, group), author))


def set_paused(store: Store, stream: str, group: str, paused: bool, reason: str | None, by: str | None) -> None:
    """Pause or resume a group. A paused group gets no new leases; open leases continue."""
    why, author = check_text(reason, "reason"), checks.author(by)

    def change(tx: Transaction) -> None:
        known = groups.locked(tx, stream, group)
        tx.run("group.pause", group_id=known.group_id, paused=paused, reason=why if paused else None)
        audit.record_for(tx, author, "pause" if paused else "resume", known, None, {"reason": why})

    transact(store, change)


def delete(store: Store, stream: str, group: str, by: str | None) -> None:
    """Delete a group and all data about its deliveries; the events stay."""
    author = checks.author(by)

    def change(tx: Transaction) -> None:
        known = groups.locked(tx, stream, group)
        if tx.one("group.open_lease", group_id=known.group_id) is not None:
            raise InFlight("The group has open leases; pause it and wait until they end.")
        tx.run("group.delete", group_id=known.group_id)
        audit.record_for(tx, author, "delete_group", known, None, {})

    transact(store, change)

"""Steps on a log that many tests share: append, claim, settle, count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import penstock


def append_orders(log: penstock.Log, count: int, stream: str = "orders", *, first: int = 0, **fields: Any) -> list[Any]:
    """Append `count` events with n = first, first + 1, …; return their ids."""
    return list(
        log.append_many(
            stream, [{"payload": {"n": n}, "type": "order.created", **fields} for n in range(first, first + count)]
        ).event_ids
    )


def append_orders_of_two_types(log: penstock.Log, count: int, stream: str = "orders") -> None:
    """Append `count` events with n = 0, 1, …; their types are order.0 and order.1 in turn."""
    log.append_many(stream, [{"payload": {"n": n}, "type": f"order.{n % 2}"} for n in range(count)])


def claim_lease(log: penstock.Log, limit: int = 100, worker: str = "w", group: str = "g") -> penstock.Lease:
    """Claim from `orders`; fail if nothing is due."""
    lease = log.claim("orders", group, limit=limit, claimed_by=worker)
    assert lease is not None
    return lease


def claim_and_settle_all(
    log: penstock.Log, stream: str = "orders", group: str = "g", limit: int = 1000, worker: str = "w"
) -> list[Any]:
    """Claim and settle until nothing is due; return the ids in the order of the claims."""
    seen = []
    while (lease := log.claim(stream, group, limit=limit, claimed_by=worker)) is not None:
        seen += [event.event_id for event in lease.events]
        lease.settle()
    return seen


def state_by_event(log: penstock.Log, stream: str = "orders", group: str = "g") -> dict[Any, str]:
    """The state of every delivery, by event id."""
    return {one.event_id: str(one.state) for one in log.deliveries(stream, group, limit=1_000_000)}


def count_by_state(log: penstock.Log, stream: str = "orders", group: str = "g") -> dict[str, int]:
    """How many deliveries are in each state; states without any are left out."""
    (found,) = [one for one in log.stats().groups if (one.stream, one.group) == (stream, group)]
    counts = {name: getattr(found, name) for name in ("pending", "claimed", "published", "dead")}
    return {name: count for name, count in counts.items() if count}


def count_published(log: penstock.Log, group: str = "g") -> int:
    """How many events of `orders` the group has published."""
    return sum(one.published for one in log.stats().groups if (one.stream, one.group) == ("orders", group))


@contextmanager
def statements(log: penstock.Log) -> Iterator[Counter[str]]:
    """Count every block that runs."""
    ran: Counter[str] = Counter()

    def hook(when: str, block: str) -> None:
        ran[block] += when == "before"

    log.store.hook = hook
    try:
        yield ran
    finally:
        log.store.hook = None

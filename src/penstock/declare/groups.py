"""From what an app declares to what the database knows about its groups."""

from __future__ import annotations

from penstock.core.group import Group
from penstock.declare.subscription import Subscription
from penstock.log.log import Log


def declare(log: Log, subscription: Subscription, by: str) -> Group:
    """Create the group, or bring its policy up to date; another binding or order is refused."""
    policy = subscription.policy
    return log.declare_group(
        subscription.stream,
        subscription.group,
        start=policy.start,
        retry=policy.retry,
        lease_seconds=policy.lease_seconds,
        ordering=policy.ordering,
        keyed=subscription.keyed,
        on_dead=policy.on_dead,
        types=subscription.types,
        headers=policy.headers,
        lanes=policy.lanes,
        by=by,
    )

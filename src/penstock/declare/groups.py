"""Store the groups that an app declares."""

from __future__ import annotations

from penstock.core.group import Group
from penstock.declare.subscription import Subscription
from penstock.log.log import Log


def declare(log: Log, subscription: Subscription, by: str) -> Group:
    """Create the group or update its policy; a different binding or ordering raises."""
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

"""A subscription on its way to another process: handlers go by name, and are loaded where they arrive."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from penstock.declare.load import Reference, reference_to
from penstock.declare.subscription import Handler, Policy, Subscription


@dataclass(frozen=True, slots=True)
class PortableSubscription:
    """What another process needs to become a worker of a group."""

    stream: str
    group: str
    policy: Policy
    handlers: tuple[tuple[Reference, tuple[str, ...] | None, bool, bool], ...]
    path: tuple[str, ...]
    arguments: tuple[str, ...]
    modules: tuple[str, ...] = ()  # that it will need before long, if they are installed

    def load(self) -> Subscription:
        """The subscription, with its handlers found in this process."""
        handlers = [
            Handler(reference.resolve(), types, wants_context, is_async)
            for reference, types, wants_context, is_async in self.handlers
        ]
        return Subscription(self.stream, self.group, self.policy, handlers)


def portable(subscription: Subscription) -> PortableSubscription:
    """Pack a subscription; `HandlerUnreachable` if no other process could find its handlers."""
    return PortableSubscription(
        subscription.stream,
        subscription.group,
        subscription.policy,
        tuple(
            (reference_to(one.function), one.types, one.wants_context, one.is_async) for one in subscription.handlers
        ),
        tuple(sys.path),
        tuple(sys.argv),
    )

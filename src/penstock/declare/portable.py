"""A subscription that can be sent to another process: handlers travel by reference and are loaded there."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from penstock.declare.load import Reference, reference_to
from penstock.declare.subscription import Handler, Policy, Subscription


@dataclass(frozen=True, slots=True)
class PortableSubscription:
    """Everything another process needs to work for a group."""

    stream: str
    group: str
    policy: Policy
    handlers: tuple[tuple[Reference, tuple[str, ...] | None, bool, bool], ...]
    path: tuple[str, ...]
    arguments: tuple[str, ...]
    modules: tuple[str, ...] = ()  # to import early, if installed

    def load(self) -> Subscription:
        """Load the handlers in this process."""
        handlers = [
            Handler(reference.resolve(), types, wants_context, is_async)
            for reference, types, wants_context, is_async in self.handlers
        ]
        return Subscription(self.stream, self.group, self.policy, handlers)


def portable(subscription: Subscription) -> PortableSubscription:
    """Pack a subscription; `HandlerUnreachable` if another process could not find its handlers."""
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

"""A subscription that can be sent to another process: handlers travel by reference and are loaded there."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace

from penstock.declare.around import PortableAround, portable_around
from penstock.declare.load import Reference, reference_to
from penstock.declare.relay import Relay, RelayReference
from penstock.declare.retry_classes import RetryClasses, classes_of
from penstock.declare.subscription import Function, Handler, Policy, Subscription


@dataclass(frozen=True, slots=True)
class PortableSubscription:
    """Everything another process needs to work for a group."""

    stream: str
    group: str
    policy: Policy
    handlers: tuple[tuple[Reference | RelayReference, tuple[str, ...] | None, bool, bool], ...]
    path: tuple[str, ...]
    arguments: tuple[str, ...]
    modules: tuple[str, ...] = ()  # to import early, if installed
    retry_classes: RetryClasses = field(default_factory=RetryClasses)  # `policy` has none
    around: PortableAround = field(default_factory=PortableAround)

    def load(self) -> Subscription:
        """Load the handlers in this process."""
        handlers = [
            Handler(reference.resolve(), types, wants_context, is_async)
            for reference, types, wants_context, is_async in self.handlers
        ]
        policy = replace(self.policy, retry=self.retry_classes.load(self.policy.retry))
        return Subscription(self.stream, self.group, policy, handlers, self.around.load())


def portable(subscription: Subscription) -> PortableSubscription:
    """Pack a subscription; `HandlerUnreachable` if another process could not find its handlers."""
    policy = subscription.policy
    return PortableSubscription(
        subscription.stream,
        subscription.group,
        replace(policy, retry=policy.retry.without_classes()),
        tuple((_reference(one.function), one.types, one.wants_context, one.is_async) for one in subscription.handlers),
        tuple(sys.path),
        tuple(sys.argv),
        retry_classes=classes_of(policy.retry),
        around=portable_around(subscription.around),
    )


def _reference(function: Function) -> Reference | RelayReference:
    return function.reference() if isinstance(function, Relay) else reference_to(function)

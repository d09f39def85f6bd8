"""Subscriptions and pipelines as the tests declare them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import penstock
from penstock.declare.pipeline import Pipeline, Sink
from penstock.declare.subscription import Policy, Subscription, handler_of

RETRY_AT_ONCE = penstock.Retry(max_attempts=2, base_seconds=0, jitter=0)
SIX_ATTEMPTS = penstock.Retry(max_attempts=6, base_seconds=0, jitter=0)


def subscription(
    *functions: Callable[..., Any], stream: str = "orders", group: str = "g", types: Any = None, **policy: Any
) -> Subscription:
    """Handlers on `orders`; a failure is retried once, at once, unless the policy says otherwise."""
    settings = {"retry": RETRY_AT_ONCE, **policy}
    return Subscription(stream, group, Policy(**settings), [handler_of(one, types) for one in functions])


def pipeline(function: Any, sink: Sink, *, stream: str = "orders", group: str = "g", **options: Any) -> Pipeline:
    """A pipeline on `orders`; a failure is retried once, at once, unless the options say otherwise."""
    return Pipeline(stream, group, function, sink, **{"retry": RETRY_AT_ONCE, **options})

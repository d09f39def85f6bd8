"""A target for a relay under test: how to publish to it, what it has got, and how to take it down and up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from penstock.connect import Nats, Valkey, Webhook
from penstock.testing import Received
from tests.support.nats_server import NatsServer
from tests.support.targets import at_webhook, in_nats, in_valkey
from tests.support.valkey_server import ValkeyServer
from tests.support.webhook_target import WebhookTarget


@dataclass
class RelayTarget:
    """A running target; `publisher()` makes a new one."""

    publisher: Callable[[], Any]
    received: Callable[[], list[Received]]
    down: Callable[[], None]
    up: Callable[[], None]


@contextmanager
def relay_target(kind: str) -> Iterator[RelayTarget]:
    """Start a target: valkey, nats or webhook."""
    if kind == "valkey":
        with ValkeyServer() as valkey:
            publisher: Callable[[], Any] = lambda: Valkey(valkey.url, stream="orders")  # noqa: E731
            yield RelayTarget(publisher, lambda: in_valkey(valkey, "orders"), valkey.kill, valkey.start)
    elif kind == "nats":
        with NatsServer() as nats:
            nats.create_stream("ORDERS", "orders", duplicate_window=0.1)
            publisher = lambda: Nats(nats.url, subject="orders")  # noqa: E731
            yield RelayTarget(publisher, lambda: in_nats(nats, "ORDERS"), nats.kill, nats.start)
    else:
        with WebhookTarget() as target:
            publisher = lambda: Webhook(target.url)  # noqa: E731
            yield RelayTarget(publisher, lambda: at_webhook(target), target.down, target.up)

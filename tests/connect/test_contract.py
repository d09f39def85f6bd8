"""Every publisher of ours keeps the contract, against a real target."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.connect import Callable as CallablePublisher
from penstock.connect import JsonLines, Kafka, Message, Nats, Valkey, Webhook
from penstock.testing import check_publisher
from tests.support.json_file import JsonFile
from tests.support.kafka_broker import KafkaBroker
from tests.support.nats_server import NatsServer
from tests.support.targets import KafkaReader, at_webhook, in_lines, in_nats, in_valkey
from tests.support.valkey_server import ValkeyServer
from tests.support.webhook_target import WebhookTarget

SECRET = "s3cr3t-pa55"


def outage_of(server: Any) -> Callable[[], AbstractContextManager[None]]:
    @contextmanager
    def outage() -> Iterator[None]:
        server.kill()
        yield
        server.start()

    return outage


@pytest.mark.shows("R01", "R06", "R10")
@pytest.mark.parametrize("transactional", [None, "relay-1"])
def test_kafka(transactional: str | None) -> None:
    with KafkaBroker() as broker:
        broker.create_topic("orders")

        @contextmanager
        def outage() -> Iterator[None]:
            broker.pause()
            yield
            broker.resume()

        config = {"sasl.username": "me", "sasl.password": SECRET}
        publisher = Kafka(
            broker.servers, topic="orders", timeout_seconds=3, transactional_id=transactional, config=config
        )
        reader = KafkaReader(broker, "orders")
        check_publisher(publisher, reader, outage=outage, secrets=[SECRET])
        reader.close()
        publisher.close()


@pytest.mark.shows("R01", "R06", "R10")
def test_valkey() -> None:
    with ValkeyServer(SECRET) as server:
        publisher = Valkey(server.url, stream="orders")
        received = lambda: in_valkey(server, "orders")  # noqa: E731
        check_publisher(publisher, received, outage=outage_of(server), secrets=[SECRET])
        publisher.close()


@pytest.mark.shows("R01", "R06", "R10")
def test_nats() -> None:
    with NatsServer(SECRET) as server:
        server.create_stream("ORDERS", "orders")
        publisher = Nats(server.url, subject="orders")
        check_publisher(
            publisher,
            lambda: in_nats(server, "ORDERS"),
            cannot=["bytes in headers", "send twice"],
            outage=outage_of(server),
            secrets=[SECRET],
        )
        publisher.close()


@pytest.mark.shows("R01", "R06", "R10")
@pytest.mark.parametrize("mode", ["structured", "binary"])
def test_webhook(mode: str) -> None:
    with WebhookTarget() as target:

        @contextmanager
        def outage() -> Iterator[None]:
            target.down()
            yield
            target.up()

        url = target.url.replace("http://", f"http://me:{SECRET}@") + f"?token={SECRET}"
        publisher = Webhook(url, secret=f"{SECRET}-signing", headers={"x-api-key": f"{SECRET}-key"}, mode=mode)
        check_publisher(
            publisher,
            lambda: [strip(one) for one in at_webhook(target)],
            cannot=["bytes in headers"],
            outage=outage,
            secrets=[SECRET],
        )
        publisher.close()


def strip(found: Any) -> Any:
    """Without the headers that the publisher itself adds."""
    from dataclasses import replace

    own = [pair for pair in found.headers if pair[0].lower() not in ("authorization", "x-api-key")]
    return replace(found, headers=own)


@pytest.mark.shows("R01", "R06", "R10")
def test_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "orders.jsonl"
    check_publisher(JsonLines(path), lambda: in_lines(path.read_bytes().splitlines(True) if path.exists() else []))


@pytest.mark.shows("R01", "R06", "R10")
@pytest.mark.parametrize("batch", [None, 50])
def test_callable(tmp_path: Path, batch: int | None) -> None:
    file = JsonFile(tmp_path / "sent")
    lock = threading.Lock()

    def one(message: Message) -> None:
        with lock:
            file.append(message)

    def many(messages: Any) -> None:
        for message in messages:
            one(message)

    check_publisher(CallablePublisher(one if batch is None else many, batch=batch), file.received)

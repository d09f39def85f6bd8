"""What the relay is compared with: each client library sending the same bytes from a plain loop, pipelined."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from penstock.connect import Kafka, Message, Nats, Valkey, Webhook
from penstock.connect.valkey import fields_of
from tests.support.kafka_broker import KafkaBroker
from tests.support.nats_server import NatsServer
from tests.support.server_process import ServerProcess
from tests.support.valkey_server import ValkeyServer

TOPIC = "bench"
CONNECTIONS = 32


class Target(NamedTuple):
    """A target: its publisher, and a plain loop that sends messages to it."""

    name: str
    events: int
    wanted: float
    publisher: Any
    plain: Callable[[Sequence[Message]], None]


@contextmanager
def valkey() -> Iterator[Target]:
    with ValkeyServer(None, "--appendonly", "no") as server:
        client = server.client()

        def plain(messages: Sequence[Message]) -> None:
            for start in range(0, len(messages), 1_000):
                pipeline = client.pipeline(transaction=False)
                for message in messages[start : start + 1_000]:
                    pipeline.execute_command("XADD", TOPIC, "*", *fields_of(message))
                pipeline.execute()

        yield Target("Valkey", 60_000, 0.7, Valkey(server.url, stream=TOPIC), plain)


@contextmanager
def kafka() -> Iterator[Target]:
    from confluent_kafka import Producer

    with KafkaBroker() as broker:
        broker.create_topic(TOPIC)
        producer = Producer({"bootstrap.servers": broker.servers, "enable.idempotence": True, "linger.ms": 1})

        def plain(messages: Sequence[Message]) -> None:
            for number, message in enumerate(messages):
                headers = [
                    ("penstock-id", message.id),
                    ("penstock-type", message.type),
                    ("penstock-content-type", message.content_type),
                ]
                producer.produce(TOPIC, message.payload, message.key, headers=headers)
                if number % 1_000 == 0:
                    producer.poll(0)
            assert producer.flush(60) == 0

        yield Target("Kafka (mock)", 90_000, 0.5, Kafka(broker.servers, topic=TOPIC), plain)


@contextmanager
def nats() -> Iterator[Target]:
    import nats as client

    with NatsServer() as server, asyncio.Runner() as runner:

        async def connect() -> Any:
            connection = await client.connect(server.url)
            stream = connection.jetstream(publish_async_max_pending=100_000)
            await stream.add_stream(name=TOPIC, subjects=[TOPIC], storage="memory")
            return stream

        stream = runner.run(connect())

        async def send(messages: Sequence[Message]) -> None:
            for start in range(0, len(messages), 1_000):
                waiting = []
                for message in messages[start : start + 1_000]:
                    headers = {
                        "Nats-Msg-Id": f"{message.id}-plain",
                        "penstock-type": message.type,
                        "penstock-content-type": message.content_type,
                    }
                    waiting.append(await stream.publish_async(TOPIC, message.payload, headers=headers))
                await asyncio.gather(*waiting)

        yield Target("NATS", 20_000, 0.8, Nats(server.url, subject=TOPIC), lambda messages: runner.run(send(messages)))


class _Endpoint(ServerProcess):
    def command(self) -> Sequence[str]:
        return (sys.executable, str(Path(__file__).with_name("endpoint.py")), str(self.port))


@contextmanager
def http() -> Iterator[Target]:
    import aiohttp

    from penstock.connect.webhook.cloud_event import structured

    with _Endpoint() as endpoint, asyncio.Runner() as runner:
        url = f"http://127.0.0.1:{endpoint.port}/"

        async def open_session() -> aiohttp.ClientSession:
            return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=CONNECTIONS))

        session = runner.run(open_session())

        async def send(messages: Sequence[Message]) -> None:
            ready = iter(messages)

            async def work() -> None:
                for message in ready:
                    pairs, body = structured(message, "penstock:bench")
                    headers = {name.decode(): value.decode() for name, value in pairs}
                    async with session.post(url, data=body, headers=headers) as answer:
                        await answer.read()
                        answer.raise_for_status()

            await asyncio.gather(*(work() for _ in range(CONNECTIONS)))

        publisher = Webhook(url, connections=CONNECTIONS)
        yield Target("an HTTP endpoint", 20_000, 0.8, publisher, lambda messages: runner.run(send(messages)))
        runner.run(session.close())


ALL = (valkey, nats, kafka, http)

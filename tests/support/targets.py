"""Targets of publishers, and what a consumer finds there."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from typing import Any

import orjson
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from penstock.testing import Received
from tests.support.kafka_broker import KafkaBroker
from tests.support.nats_server import NatsServer
from tests.support.valkey_server import ValkeyServer
from tests.support.waiting import wait_until
from tests.support.webhook_target import Request, WebhookTarget

OURS = "penstock-"


def in_kafka(broker: KafkaBroker, topic: str) -> list[Received]:
    """All messages of a topic of four partitions, partition by partition."""
    settings = {"enable.partition.eof": True, "fetch.wait.max.ms": 10, "group.id": "reader", "log_level": 0}
    consumer = Consumer({"bootstrap.servers": broker.servers, **settings})
    found: list[Any] = []
    consumer.assign([TopicPartition(topic, one, OFFSET_BEGINNING) for one in range(4)])

    def at_the_end() -> bool:
        found.extend(consumer.consume(1_000, 0.05))
        return len({one.partition() for one in found if one.error() is not None}) == 4

    wait_until(at_the_end, "the end of the topic")
    consumer.close()
    return [_from_kafka(one) for one in found if one.error() is None]


def _from_kafka(message: Any) -> Received:
    headers = message.headers() or []
    own = dict(headers)
    return Received(
        own["penstock-id"].decode(),
        message.value(),
        [pair for pair in headers if not pair[0].startswith(OURS)],
        None if message.key() is None else message.key().decode(),
        own["penstock-type"].decode(),
        own["penstock-content-type"].decode(),
        repr((headers, message.value(), message.key())).encode(),
    )


def in_valkey(server: ValkeyServer, stream: str) -> list[Received]:
    """All entries of a stream."""
    with server.client() as client:
        client.response_callbacks.pop("XRANGE")  # it makes a mapping, which has no place for duplicates
        entries = client.execute_command("XRANGE", stream, "-", "+")
    return [_from_valkey(flat) for _, flat in entries]


def _from_valkey(flat: Sequence[bytes]) -> Received:
    pairs = [*zip(flat[::2], flat[1::2], strict=True)]
    fields = {name.decode(): value for name, value in pairs}
    key = fields.get("key")
    return Received(
        fields["event_id"].decode(),
        fields["payload"],
        [(name.decode().removeprefix("header:"), value) for name, value in pairs if name.startswith(b"header:")],
        None if key is None else key.decode(),
        fields["event_type"].decode(),
        fields["content_type"].decode(),
        b" ".join(flat),
    )


def in_nats(server: NatsServer, stream: str) -> list[Received]:
    """All messages of a stream."""
    found = []
    for one in server.messages(stream):
        ours = {name: value.decode() for name, value in one.headers if name.startswith((OURS, "Nats-"))}
        own = [(name, value) for name, value in one.headers if name not in ours]
        found.append(
            Received(
                ours["Nats-Msg-Id"],
                one.data,
                own,
                ours.get("penstock-key"),
                ours["penstock-type"],
                ours["penstock-content-type"],
                repr(one).encode(),
            )
        )
    return found


_SENT = {"host", "content-length", "content-type", "user-agent", "webhook-id", "webhook-timestamp", "webhook-signature"}


def at_webhook(target: WebhookTarget) -> list[Received]:
    """All requests, as CloudEvents of either mode."""
    return [_from_request(one) for one in [*target.requests]]


def _from_request(request: Request) -> Received:
    own = [
        (name, value.encode("latin-1"))
        for name, value in request.headers
        if name.lower() not in _SENT and not name.lower().startswith("ce-")
    ]
    raw = repr(request).encode()
    if str(request.header("content-type")).startswith("application/cloudevents+json"):
        body = orjson.loads(request.body)
        return Received(
            body["id"],
            _data(request.body, body),
            own,
            body.get("partitionkey"),
            body["type"],
            body["datacontenttype"],
            raw,
        )
    from urllib.parse import unquote

    key = request.header("ce-partitionkey")
    return Received(
        str(request.header("ce-id")),
        request.body,
        own,
        None if key is None else unquote(key),
        request.header("ce-type"),
        request.header("content-type"),
        raw,
    )


def _data(text: bytes, body: dict[str, Any]) -> bytes:
    """The payload byte by byte: what stands after `"data":`, which is the last member."""
    if "data_base64" in body:
        return base64.b64decode(body["data_base64"])
    return text[text.index(b'"data":') + len(b'"data":') : -1]


def in_lines(lines: Iterable[bytes]) -> list[Received]:
    """All lines of a JSON Lines file."""
    found = []
    for line in lines:
        row = json.loads(line)
        headers: list[tuple[str, str | bytes]] = []
        for name, value in row["headers"].items():
            for one in value if isinstance(value, list) else [value]:
                headers.append((name, base64.b64decode(one["base64"]) if isinstance(one, dict) else one))
        found.append(
            Received(row["id"], _payload(line, row), headers, row["key"], row["type"], row["content_type"], line)
        )
    return found


def _payload(line: bytes, row: dict[str, Any]) -> bytes:
    if "payload_base64" in row:
        return base64.b64decode(row["payload_base64"])
    return line[line.index(b'"payload":') + len(b'"payload":') : -2]

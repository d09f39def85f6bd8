"""Ingest against the client's plain read of the same entries, acknowledgement included.

And against `append_many` of the same events, which is as fast as they can be stored here, whatever reads them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import psycopg

import penstock
from benchmarks.appending import ORDER
from benchmarks.measuring import Figure, overall
from penstock.connect import KafkaTopic, ValkeyStream
from penstock.core.codec import encode_json
from penstock.core.limits import INGEST_BATCH
from penstock.declare.ingest import Ingest
from penstock.engine.ingest.engine import IngestEngine
from tests.support.kafka_broker import KafkaBroker
from tests.support.postgres_server import PostgresServer
from tests.support.valkey_server import ValkeyServer

TURNS = 3
BATCH = 2_000
WANTED = 0.4


class Origin(NamedTuple):
    """A source that is filled, a plain read of all of it (seconds for how many entries), and our source."""

    name: str
    entries: int
    plain: Callable[[str], float]
    source: Callable[[str], Any]


def run(server: PostgresServer) -> list[Figure]:
    figures = []
    for origin in (valkey, kafka):
        with origin() as one:
            plain, stored, ours = [], [], []
            for turn in range(TURNS + 1):
                taken = one.plain(f"plain-{turn}")
                appended_rate = appended(server, one.entries)
                rate = ingested(server, one, f"ours-{turn}")
                if turn:
                    plain.append(one.entries / taken)
                    stored.append(appended_rate)
                    ours.append(rate)
            for against, rates, wanted in (
                ("its client's plain read", plain, WANTED),
                ("append_many of the same events", stored, None),
            ):
                detail = f"{overall(ours):,.0f} entries/s against {overall(rates):,.0f}"
                ratio = overall(ours) / overall(rates)
                figures.append(Figure(f"ingest from {one.name} vs {against}", ratio, wanted, detail=detail))
    return figures


def appended(server: PostgresServer, count: int) -> float:
    """Events a second that `append_many` stores, in batches as large as those of ingest."""
    url = server.create_database()
    events = [{"payload": {**ORDER, "id": n}, "type": "order", "ordering_key": str(n % 100)} for n in range(count)]
    with penstock.open(url) as log:
        log.append_many("entries", events[:INGEST_BATCH])
        began = time.perf_counter()
        for first in range(0, count, INGEST_BATCH):
            log.append_many("entries", events[first : first + INGEST_BATCH])
        return count / (time.perf_counter() - began)


def ingested(server: PostgresServer, origin: Origin, group: str) -> float:
    """Entries a second, between the first commit and the last."""
    url = server.create_database()
    with penstock.open(url) as log, psycopg.connect(url, autocommit=True) as connection:
        engine = IngestEngine(log, [Ingest(origin.source(group), "entries")], until_drained=True)
        engine.start()
        engine.wait()
        row = connection.execute(
            "select count(*), count(*) filter (where created_at > first), "
            "extract(epoch from max(created_at) - min(first)) "
            "from penstock.events, (select min(created_at) as first from penstock.events) f"
        ).fetchone()
    assert row is not None and row[0] == origin.entries, row
    return float(row[1]) / float(row[2])


@contextmanager
def valkey() -> Iterator[Origin]:
    entries = 200_000
    with ValkeyServer(None, "--appendonly", "no") as server:
        client = server.client()
        pipeline = client.pipeline(transaction=False)
        for n in range(entries):
            pipeline.xadd("entries", {"event_type": "order", "payload": encode_json({**ORDER, "id": n})})
        pipeline.execute()

        def plain(group: str) -> float:
            client.xgroup_create("entries", group, "0")
            began = time.perf_counter()
            while found := client.xreadgroup(group, "plain", {"entries": ">"}, count=BATCH):
                client.xack("entries", group, *(one[0] for one in found[0][1]))
            return time.perf_counter() - began

        yield Origin("Valkey", entries, plain, lambda group: ValkeyStream(server.url, "entries", group=group))


@contextmanager
def kafka() -> Iterator[Origin]:
    from confluent_kafka import Consumer, Producer, TopicPartition

    entries = 60_000
    with KafkaBroker() as broker:
        broker.create_topic("entries")
        producer = Producer({"bootstrap.servers": broker.servers, "log_level": 0})
        for n in range(entries):
            producer.produce("entries", encode_json({**ORDER, "id": n}), str(n % 100))
            producer.poll(0)
        producer.flush()

        def plain(group: str) -> float:
            consumer = Consumer({"bootstrap.servers": broker.servers, "group.id": group, "log_level": 0})
            consumer.assign([TopicPartition("entries", part, 0) for part in range(4)])
            left = entries - len(consumer.consume(1, 30))
            began = time.perf_counter()
            while left:
                found = consumer.consume(min(BATCH, left), 1)  # more would wait for the end of the second
                left -= len([(one.key(), one.value()) for one in found])
                consumer.commit(asynchronous=True)
            taken = time.perf_counter() - began
            consumer.close()
            return taken

        yield Origin("Kafka (mock)", entries, plain, lambda group: KafkaTopic(broker.servers, "entries", group=group))
